//! An engine that costs almost nothing: the far end of the load tests.
//!
//! It has its own HTTP/1.1 server so that one core can feed a router on another one: answers are encoded once per
//! kind and written from memory. What it says and when is chosen by the request (`load-tests/common`), heads look
//! like uvicorn's. It checks nothing beyond what it needs; the generator does the verifying.

#![allow(unreachable_pub, reason = "a program of its own: nothing is exported")]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "each end uses its half")]
mod common;

mod answer;
mod conn;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use clap::Parser;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::task::LocalSet;

/// A cheap HTTP/1.1 engine for load tests.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Threads, each with its own event loop and its own listening socket.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let threads: Vec<_> = (0..args.threads.max(1))
        .map(|_| listen(args.listen).map(|socket| std::thread::spawn(move || run(socket))))
        .collect::<io::Result<_>>()?;
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("an engine thread panicked"))??;
    }
    Ok(())
}

/// A socket for one thread; the kernel spreads connections over all that share the port.
fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn run(socket: std::net::TcpListener) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::from_std(socket)?;
        let book = Rc::new(answer::Book::default());
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, most likely; give connections time to close.
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                continue;
            };
            let book = Rc::clone(&book);
            // A client that leaves in the middle is normal here.
            tokio::task::spawn_local(async move { drop(conn::serve(stream, &book).await) });
        }
    })
}
