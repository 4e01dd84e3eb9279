//! An engine that costs almost nothing: the far end of the load tests.
//!
//! It has its own HTTP/1.1 server so that one core can feed a router on another one: answers are encoded once per
//! kind and written from memory. What it says and when is chosen by the request (`load-tests/common`), heads look
//! like uvicorn's. The generator does the verifying; only what it cannot see is checked here: whether a router for
//! prefill and decode keeps the contract (`pd.rs`). What was counted is at `GET /load-report`.

#![allow(unreachable_pub, reason = "a program of its own: nothing is exported")]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "each end uses its half")]
mod common;

mod answer;
mod conn;
mod pd;
mod request;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use clap::Parser;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::task::{JoinSet, LocalSet};

use crate::pd::Role;

/// A cheap HTTP/1.1 engine for load tests.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Address to listen on as a prefill engine too; then `--listen` is its decode
    #[arg(long, conflicts_with = "threads")]
    prefill: Option<SocketAddr>,
    /// Threads, each with its own event loop and its own listening socket.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let threads: Vec<_> = (0..args.threads.max(1))
        .map(|_| {
            let sockets = [Some(args.listen), args.prefill].into_iter().flatten().map(listen);
            sockets.collect::<io::Result<Vec<_>>>().map(|sockets| std::thread::spawn(move || run(sockets)))
        })
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

/// The first socket is the decode's, a second one the prefill's.
fn run(sockets: Vec<std::net::TcpListener>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let engine = Rc::new(conn::Engine::new(sockets.len() > 1));
        let mut listeners = JoinSet::new();
        for (socket, role) in sockets.into_iter().zip([Role::Decode, Role::Prefill]) {
            listeners.spawn_local(accept(TcpListener::from_std(socket)?, Rc::clone(&engine), role));
        }
        while listeners.join_next().await.is_some() {}
        Ok(())
    })
}

async fn accept(listener: TcpListener, engine: Rc<conn::Engine>, role: Role) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely; give connections time to close.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let engine = Rc::clone(&engine);
        // A client that leaves in the middle is normal here.
        tokio::task::spawn_local(async move { drop(conn::serve(stream, &engine, role).await) });
    }
}
