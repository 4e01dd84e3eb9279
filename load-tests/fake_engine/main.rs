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

use crate::pd::{Door, Role};

/// A cheap HTTP/1.1 engine for load tests.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on; again for each one.
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: Vec<SocketAddr>,
    /// Address to listen on as a prefill engine too, again for each one; then those of `--listen` are decodes
    #[arg(long, conflicts_with = "threads")]
    prefill: Vec<SocketAddr>,
    /// Threads, each with its own event loop and its own listening socket.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let threads: Vec<_> = (0..args.threads.max(1))
        .map(|_| {
            let decodes = args.listen.iter().map(|&at| (at, Role::Decode));
            let prefills = args.prefill.iter().map(|&at| (at, Role::Prefill));
            let doors =
                decodes.chain(prefills).map(|(at, role)| Ok((listen(at)?, Door { role, port: at.port() })));
            doors.collect::<io::Result<Vec<_>>>().map(|doors| std::thread::spawn(move || run(doors)))
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

/// One event loop for all of them: pairs meet on one thread.
fn run(doors: Vec<(std::net::TcpListener, Door)>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let engine = Rc::new(conn::Engine::new(doors.iter().any(|(_, door)| door.role == Role::Prefill)));
        let mut listeners = JoinSet::new();
        for (socket, door) in doors {
            listeners.spawn_local(accept(TcpListener::from_std(socket)?, Rc::clone(&engine), door));
        }
        while listeners.join_next().await.is_some() {}
        Ok(())
    })
}

async fn accept(listener: TcpListener, engine: Rc<conn::Engine>, door: Door) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely; give connections time to close.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let engine = Rc::clone(&engine);
        // A client that leaves in the middle is normal here.
        tokio::task::spawn_local(async move { drop(conn::serve(stream, &engine, door).await) });
    }
}
