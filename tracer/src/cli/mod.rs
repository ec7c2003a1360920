//! One file per verb.
