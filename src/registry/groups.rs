//! Endpoints by what they are: role, model, revision, pairing token. A service has few such groups, however many endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Role;
use super::endpoint::Endpoint;

/// What the endpoints of a group have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub role: Role,
    pub model: Option<String>,
    pub revision: String,
    pub token: String,
}

/// The groups of one service in one snapshot.
#[derive(Debug, Default)]
pub struct Groups {
    all: BTreeMap<Kind, Vec<Arc<Endpoint>>>,
    /// Two prefills or decodes may not pair.
    split: bool,
}

impl Groups {
    pub(super) fn of<'a>(endpoints: impl Iterator<Item = &'a Arc<Endpoint>>) -> Self {
        let mut all: BTreeMap<Kind, Vec<Arc<Endpoint>>> = BTreeMap::new();
        let mut last: Option<(Kind, Vec<Arc<Endpoint>>)> = None;
        for endpoint in endpoints {
            // Neighbours are mostly alike: no look-up and no copies of the words for them.
            if let Some((kind, group)) = &mut last
                && kind.is(endpoint)
            {
                group.push(Arc::clone(endpoint));
                continue;
            }
            if let Some((kind, group)) = last.take() {
                all.entry(kind).or_default().extend(group);
            }
            last = Some((Kind::of(endpoint), vec![Arc::clone(endpoint)]));
        }
        if let Some((kind, group)) = last {
            all.entry(kind).or_default().extend(group);
        }
        let mut tokens = all.keys().map(|kind| kind.token.as_str()).filter(|token| !token.is_empty());
        let first = tokens.next();
        let split = tokens.any(|token| Some(token) != first);
        Self { all, split }
    }

    /// Groups of this role, with their endpoints.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = (&Kind, &[Arc<Endpoint>])> {
        self.all
            .iter()
            .filter(move |(kind, _)| kind.role == role)
            .map(|(kind, group)| (kind, group.as_slice()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Kind, &[Arc<Endpoint>])> {
        self.all.iter().map(|(kind, group)| (kind, group.as_slice()))
    }

    /// Whether some prefill may not be decoded by some decode.
    #[inline]
    pub fn are_split(&self) -> bool {
        self.split
    }

    /// Whether a decode that may decode for `prefill` takes requests now.
    pub fn has_partner(&self, prefill: &Endpoint, usable: impl Fn(&Endpoint) -> bool) -> bool {
        let mut groups = self.of_role(Role::Decode);
        groups.any(|(_, group)| {
            group.first().is_some_and(|decode| prefill.pairs_with(decode)) && group.iter().any(|e| usable(e))
        })
    }
}

impl Kind {
    fn of(endpoint: &Endpoint) -> Self {
        let Endpoint { role, model, revision, token, .. } = endpoint;
        Self { role: *role, model: model.clone(), revision: revision.clone(), token: token.clone() }
    }

    fn is(&self, endpoint: &Endpoint) -> bool {
        (self.role, &self.model) == (endpoint.role, &endpoint.model)
            && (&self.revision, &self.token) == (&endpoint.revision, &endpoint.token)
    }
}
