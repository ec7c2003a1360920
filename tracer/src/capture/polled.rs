//! What an epoll descriptor watches: whether a process that waits on it serves others, asks others, or both.

use std::collections::BTreeSet;
use std::fs;

use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::Process;

use crate::trace::{Ns, Polled};

/// TCP only; `None` where the process or the descriptor is gone, or no socket is watched.
pub fn read(at: Ns, pid: u32, fd: u32) -> Option<Polled> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let sockets: BTreeSet<u64> = watched(&info).filter_map(|fd| socket(pid, fd)).collect();
    if sockets.is_empty() {
        return None;
    }
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let mut all = process.tcp().ok()?;
    all.extend(process.tcp6().unwrap_or_default());
    let (listening, asks) = told(&all, &sockets);
    Some(Polled { at, pid, fd, listening, asks })
}

/// Descriptors named in an epoll descriptor's `fdinfo`.
fn watched(info: &str) -> impl Iterator<Item = u32> + '_ {
    info.lines().filter_map(|l| l.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok())
}

/// The inode of a socket's descriptor.
fn socket(pid: u32, fd: u32) -> Option<u64> {
    let target = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Addresses listened on, and whether any connection among `sockets` was made from this side.
fn told(all: &[TcpNetEntry], sockets: &BTreeSet<u64>) -> (Vec<String>, bool) {
    let listens = |e: &&TcpNetEntry| e.state == TcpState::Listen;
    let ports: BTreeSet<u16> = all.iter().filter(listens).map(|e| e.local_address.port()).collect();
    let ours = || all.iter().filter(|e| sockets.contains(&e.inode));
    let listening = ours().filter(listens).map(|e| e.local_address.to_string()).collect();
    let asks = ours().any(|e| e.state != TcpState::Listen && !ports.contains(&e.local_address.port()));
    (listening, asks)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    use rustix::event::epoll;

    use super::*;

    #[test]
    fn a_server_listens_and_a_client_asks() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (served, _) = listener.accept().unwrap();
        let polled = |watched: &[&dyn std::os::fd::AsFd]| {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            for (i, fd) in watched.iter().enumerate() {
                epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(i as u64), epoll::EventFlags::IN)
                    .unwrap();
            }
            read(7, std::process::id(), epoll.as_raw_fd().unsigned_abs())
        };
        let server = polled(&[&listener, &served]).unwrap();
        assert_eq!((server.listening, server.asks), (vec![address.to_string()], false));
        let both = polled(&[&listener, &client]).unwrap();
        assert_eq!((both.listening.len(), both.asks), (1, true));
        let asking = polled(&[&client]).unwrap();
        assert_eq!((asking.listening.len(), asking.asks), (0, true));
        assert_eq!(polled(&[]), None);
        assert_eq!(read(7, std::process::id(), u32::MAX), None);
    }
}
