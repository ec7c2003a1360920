//! `--user`: runs the command as somebody else, with that user's groups.

use std::fs;
use std::process::Command;

use rustix::process::{Gid, Uid};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// Name and home folder, where `/etc/passwd` has them.
    name: Option<(String, String)>,
}

impl User {
    /// By name, `UID` or `UID:GID`.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        let read = |path: &str| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Self::parse(text, &read("/etc/passwd"), &read("/etc/group"))
    }

    fn parse(text: &str, passwd: &str, group: &str) -> Option<Self> {
        // The highest number means "leave it as it is" to the kernel, so nobody has it.
        Self::read(text, passwd, group)
            .filter(|user| ![user.uid, user.gid].iter().chain(&user.groups).any(|id| *id == u32::MAX))
    }

    fn read(text: &str, passwd: &str, group: &str) -> Option<Self> {
        let (user, own_gid) = match text.split_once(':') {
            Some((user, gid)) => (user, Some(gid.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let uid = user.parse::<u32>().ok();
        for line in passwd.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, line_uid, gid, _, home, _] = fields[..] else { continue };
            let (Ok(line_uid), Ok(gid)) = (line_uid.parse(), gid.parse()) else { continue };
            if name == user || uid == Some(line_uid) {
                let gid = own_gid.unwrap_or(gid);
                let groups = groups(name, gid, group);
                let name = Some((name.to_owned(), home.to_owned()));
                return Some(Self { uid: line_uid, gid, groups, name });
            }
        }
        // A number need not be listed, as in containers.
        uid.zip(own_gid).map(|(uid, gid)| Self { uid, gid, groups: vec![gid], name: None })
    }

    /// Changes this process, which must have one thread, and the command's environment.
    pub fn become_it(&self, command: &mut Command) -> std::io::Result<()> {
        if let Some((name, home)) = &self.name {
            command.env("USER", name).env("LOGNAME", name).env("HOME", home);
        }
        let groups: Vec<Gid> = self.groups.iter().map(|g| Gid::from_raw(*g)).collect();
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_gid(Gid::from_raw(self.gid))?;
        rustix::thread::set_thread_uid(Uid::from_raw(self.uid))?;
        Ok(())
    }
}

fn groups(name: &str, gid: u32, group: &str) -> Vec<u32> {
    let mut groups = vec![gid];
    for line in group.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [_, _, gid, members] = fields[..]
            && members.split(',').any(|m| m == name)
            && let Ok(gid) = gid.parse()
            && !groups.contains(&gid)
        {
            groups.push(gid);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000:Ann:/home/ann:/bin/sh\n";
    const GROUP: &str = "video:x:44:bob,ann\nrender:x:105:ann\nann:x:1000:\nannex:x:7:anna\n";

    #[test]
    fn a_user_brings_all_groups() {
        let ann = User::parse("ann", PASSWD, GROUP).unwrap();
        assert_eq!((ann.uid, ann.gid, ann.groups.as_slice()), (1000, 1000, &[1000, 44, 105][..]));
        assert_eq!(User::parse("1000", PASSWD, GROUP), Some(ann));
    }

    #[test]
    fn a_number_that_is_not_listed_needs_a_group() {
        assert_eq!(User::parse("4242", PASSWD, GROUP), None);
        let unlisted = User::parse("4242:77", PASSWD, GROUP).unwrap();
        assert_eq!((unlisted.uid, unlisted.groups.as_slice()), (4242, &[77][..]));
    }

    #[test]
    fn nobody_is_nobody() {
        for text in ["", "nosuch", "ann:x", ":1"] {
            assert_eq!(User::parse(text, PASSWD, GROUP), None, "{text}");
        }
    }

    #[test]
    fn nobody_has_the_number_that_means_no_change() {
        let highest = "4294967295";
        let passwd = format!("bad:x:{highest}:5::/:/bin/sh\ngroupless:x:5:{highest}::/:/bin/sh\n{PASSWD}");
        let group = format!("odd:x:{highest}:ann\n{GROUP}");
        for text in ["4294967295:5", "5:4294967295", "4294967295:4294967295", "bad", "groupless", "ann"] {
            assert_eq!(User::parse(text, &passwd, &group), None, "{text}");
        }
        assert!(User::parse("4294967294:4294967294", &passwd, &group).is_some());
    }
}
