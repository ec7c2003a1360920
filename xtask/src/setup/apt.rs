//! Fetching Debian packages without installing them: no root, no change to the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell::{has, output, run, say};

/// apt-get with the system's sources and keys; lists and archives are the system's or our own.
#[derive(Debug)]
pub struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// Reads the system's package lists.
    pub fn system() -> Result<Self> {
        for tool in ["apt-get", "apt-cache", "dpkg", "dpkg-deb"] {
            ensure!(has(tool), "`{tool}` is not there, so Debian's packages cannot be had");
        }
        Ok(Self { options: ["Debug::NoLocking=1", "APT::Sandbox::User=root"].map(String::from).to_vec() })
    }

    /// Fetches lists of its own into `cache`: the system's may be absent, old, or root's to refresh.
    pub fn own(cache: &Path) -> Result<Self> {
        let mut apt = Self::system()?;
        apt.keep_in(&cache.join("apt"))?;
        apt.update()?;
        Ok(apt)
    }

    /// Reads one release of Debian alone, whatever the system's is.
    pub fn suite(cache: &Path, suite: &str) -> Result<Self> {
        Self::section(cache, suite, "main")
    }

    /// Reads one section of one release of Debian alone.
    pub fn section(cache: &Path, suite: &str, section: &str) -> Result<Self> {
        let mut apt = Self::system()?;
        let own = cache.join(if section == "main" {
            format!("apt-{suite}")
        } else {
            format!("apt-{suite}-{section}")
        });
        apt.keep_in(&own)?;
        let sources = own.join("sources.list");
        fs::write(&sources, format!("deb http://deb.debian.org/debian {suite} {section}\n"))?;
        apt.options.push(format!("Dir::Etc::SourceList={}", sources.display()));
        apt.options.push("Dir::Etc::SourceParts=/dev/null".into());
        // What is installed counts for a package's newest version, which an older release does not have.
        apt.options.push("Dir::State::Status=/dev/null".into());
        apt.update()?;
        Ok(apt)
    }

    fn keep_in(&mut self, folder: &Path) -> Result<()> {
        let lists = folder.join("lists");
        let archives = folder.join("cache");
        fs::create_dir_all(lists.join("partial"))?;
        fs::create_dir_all(archives.join("archives/partial"))?;
        self.options.push(format!("Dir::State::Lists={}", lists.display()));
        self.options.push(format!("Dir::Cache={}", archives.display()));
        Ok(())
    }

    fn update(&mut self) -> Result<()> {
        say("fetching Debian's package lists");
        // Without this a list that could not be fetched is only a warning.
        self.options.push("APT::Update::Error-Mode=any".into());
        output(self.command("apt-get").args(["-q", "update"]))
            .context("Debian's package lists cannot be fetched (no network?)")?;
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// Whether the package can be fetched.
    pub fn knows(&self, package: &str) -> bool {
        output(self.command("apt-cache").args(["policy", package])).is_ok_and(|policy| {
            policy.lines().filter_map(|l| l.trim().strip_prefix("Candidate: ")).any(|c| c != "(none)")
        })
    }

    /// Names of everything `package` depends on, at any depth.
    pub fn depends(&self, package: &str) -> Result<Vec<String>> {
        ensure!(self.knows(package), "Debian's package {package} is not in the configured sources");
        let tree = output(self.command("apt-cache").args([
            "depends",
            "--recurse",
            "--no-recommends",
            "--no-suggests",
            "--no-conflicts",
            "--no-breaks",
            "--no-replaces",
            "--no-enhances",
            package,
        ]))?;
        Ok(tree.lines().filter(|l| !l.starts_with([' ', '<', '|'])).map(String::from).collect())
    }

    /// What installing `packages` would add to this system.
    fn additions(&self, packages: &[String]) -> Result<Vec<String>> {
        let plan = output(
            self.command("apt-get").args(["-s", "--no-install-recommends", "install"]).args(packages),
        )?;
        Ok(plan
            .lines()
            .filter_map(|l| l.strip_prefix("Inst "))
            .filter_map(|l| l.split_whitespace().next())
            .map(String::from)
            .collect())
    }

    /// Downloads `packages`, and what they need that this system lacks, into `folder`.
    pub fn download(&self, packages: &[String], folder: &Path) -> Result<()> {
        let mut wanted = packages.to_vec();
        // A system that conflicts with them (its own `rustc`) can still have them unpacked elsewhere.
        wanted.extend(self.additions(packages).unwrap_or_default());
        wanted.sort();
        wanted.dedup();
        self.download_alone(&wanted, folder)
    }

    /// Downloads `packages` and nothing else into `folder`.
    pub fn download_alone(&self, packages: &[String], folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        say(format!("downloading {} packages: {}", packages.len(), packages.join(" ")));
        output(self.command("apt-get").args(["-q", "download"]).args(packages).current_dir(folder))?;
        Ok(())
    }
}

/// Unpacks every package of `debs` into `root`, which is complete or absent, never half there.
pub fn unpack(debs: &Path, root: &Path) -> Result<()> {
    let part = root.with_extension("part");
    for old in [&part, &root.to_path_buf()] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    fs::create_dir_all(&part)?;
    let mut packages: Vec<PathBuf> = fs::read_dir(debs)?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    packages.retain(|p| p.extension().is_some_and(|e| e == "deb"));
    packages.sort();
    if packages.is_empty() {
        bail!("nothing was downloaded into {}", debs.display());
    }
    say(format!("unpacking into {}", root.display()));
    for package in &packages {
        run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&part))?;
    }
    fs::rename(&part, root)?;
    fs::remove_dir_all(debs)?;
    Ok(())
}
