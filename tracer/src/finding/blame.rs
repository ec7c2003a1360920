//! Whom to name for all the causes of a mechanism together.

use std::collections::BTreeMap;

use crate::cause::{Cause, Culprit, CulpritKind};

/// Names a directory needs to say more than the file system's root.
const LEAST_NAMES: usize = 2;

/// The culprit of most of the time; of many directories none of which has half of it, what they lie under.
pub(crate) fn culprit(causes: &[&Cause]) -> Option<Culprit> {
    let mut by: BTreeMap<&Culprit, u64> = BTreeMap::new();
    for cause in causes {
        if let Some(culprit) = &cause.culprit {
            let ns = by.entry(culprit).or_default();
            *ns = ns.saturating_add(cause.ns);
        }
    }
    let all = by.values().copied().fold(0, u64::saturating_add);
    let (&largest, &ns) = by.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0)))?;
    if largest.kind != CulpritKind::Directory || ns.saturating_mul(2) >= all {
        return Some(largest.clone());
    }
    let directories = by.keys().filter(|c| c.kind == CulpritKind::Directory).map(|c| c.name.as_str());
    let common = directories.map(|name| name.split('/').collect::<Vec<_>>()).reduce(|a, b| {
        let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        a.into_iter().take(same).collect()
    })?;
    if common.iter().filter(|name| !name.is_empty()).count() < LEAST_NAMES {
        return Some(largest.clone());
    }
    Some(Culprit { kind: CulpritKind::Directory, name: common.join("/") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::{Mechanism, Stage};

    fn named(culprits: &[(CulpritKind, &str, u64)]) -> Option<String> {
        let causes: Vec<Cause> = culprits
            .iter()
            .map(|&(kind, name, ns)| Cause {
                mechanism: Mechanism::StorageMetadata,
                leaf: Mechanism::StorageMetadata,
                stage: Stage::Storage,
                ns,
                gain_ns: 0,
                count: 1,
                pid: None,
                culprit: Some(Culprit { kind, name: name.into() }),
                chain: Vec::new(),
                note: None,
            })
            .collect();
        culprit(&causes.iter().collect::<Vec<_>>()).map(|c| c.name)
    }

    #[test]
    fn many_directories_are_what_they_lie_under() {
        use CulpritKind::{Directory, Function};
        let many = [
            (Directory, "/data/set/08/1768", 3),
            (Directory, "/data/set/07/0447", 2),
            (Directory, "/data/set/07/1", 2),
        ];
        assert_eq!(named(&many).as_deref(), Some("/data/set"));
        assert_eq!(named(&[(Directory, "/data/a", 2), (Directory, "/var/b", 3)]).as_deref(), Some("/var/b"));
        assert_eq!(named(&[(Directory, "/a/b/c", 9), (Directory, "/a/b/d", 3)]).as_deref(), Some("/a/b/c"));
        let apart = [(Directory, "/a/x", 2), (Directory, "/b/x", 2), (Directory, "/c/x", 3)];
        assert_eq!(named(&apart).as_deref(), Some("/c/x"));
        assert_eq!(
            named(&[(Function, "f", 2), (Function, "g", 1), (Function, "f", 1)]).as_deref(),
            Some("f")
        );
        assert_eq!(named(&[]), None);
    }
}
