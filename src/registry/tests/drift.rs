use proptest::prelude::*;

use super::*;

const NIXL: EngineKind = EngineKind::Vllm(VllmConnector::Nixl);
const STORE: EngineKind = EngineKind::Vllm(VllmConnector::Store);

/// An endpoint with all that it says.
#[derive(Debug, Clone)]
struct One {
    id: u64,
    role: Role,
    revision: &'static str,
    token: &'static str,
    created: i64,
    facts: EngineFacts,
}

impl One {
    fn new(id: u64, role: Role, token: &'static str, said: &[(Fact, &str)]) -> Self {
        let mut facts = EngineFacts::default();
        for (fact, value) in said {
            facts.set(*fact, value);
        }
        Self { id, role, revision: "", token, created: 100 + i64::try_from(id).unwrap(), facts }
    }

    fn claim(&self) -> Claim<'_> {
        let Self { id, role, revision, token, created, facts } = self;
        Claim {
            id: *id,
            role: *role,
            revision,
            token,
            age: (*created, "", u16::try_from(*id).unwrap()),
            facts,
        }
    }
}

/// Ids of those that contradict their labels, with what they said.
fn drifted(engine: EngineKind, all: &[One]) -> Vec<(u64, &'static str)> {
    let claims: Vec<_> = all.iter().map(One::claim).collect();
    let found = contradictions(engine, &claims);
    let mut found: Vec<_> = found.into_iter().map(|(id, drift)| (id, drift.fact.as_str())).collect();
    found.sort_unstable();
    found
}

fn pages(id: u64, role: Role, token: &'static str, size: &str) -> One {
    One::new(id, role, token, &[(Fact::PageSize, size)])
}

#[test]
fn what_a_decode_compares_before_it_pulls_is_compared_under_a_token() {
    let hashed = |id, role, hash| One::new(id, role, "kv", &[(Fact::KvCompatibility, hash)]);
    let all = [hashed(1, Role::Prefill, "a"), hashed(2, Role::Decode, "b"), hashed(3, Role::Decode, "a")];
    assert_eq!(drifted(NIXL, &all), [(2, "kv_compatibility")]);
    assert_eq!(drifted(STORE, &all), [], "a store has no such handshake");
}

#[test]
fn most_of_a_token_are_right_whatever_their_role() {
    let all = [
        pages(1, Role::Prefill, "kv", "64"),
        pages(2, Role::Prefill, "kv", "1"),
        pages(3, Role::Decode, "kv", "1"),
        One::new(4, Role::Decode, "kv", &[]),
        pages(5, Role::Decode, "other", "64"),
        pages(6, Role::Decode, "", "64"),
    ];
    assert_eq!(drifted(EngineKind::Sglang, &all), [(1, "page_size")], "also the oldest");
    assert_eq!(drifted(EngineKind::Plain, &all), []);
    let claims: Vec<_> = all.iter().map(One::claim).collect();
    let found = contradictions(EngineKind::Sglang, &claims);
    assert_eq!(found[&1].detail, "the engine reports page_size 64, others of pairing token kv report 1");
}

#[test]
fn of_two_the_older_pod_is_right() {
    let mut all = [pages(1, Role::Prefill, "kv", "64"), pages(2, Role::Decode, "kv", "1")];
    assert_eq!(drifted(EngineKind::Sglang, &all), [(2, "page_size")]);
    all[0].created = 200;
    assert_eq!(drifted(EngineKind::Sglang, &all), [(1, "page_size")]);
}

/// What the engines themselves compare, and no more: vLLM takes other block sizes, SGLang other versions.
#[test]
fn a_token_asks_for_what_the_engines_ask_of_each_other() {
    let said = [
        (Fact::Model, "/a", "/b"),
        (Fact::ModelRevision, "r1", "r2"),
        (Fact::Version, "0.32.0", "0.33.0"),
        (Fact::TransferBackend, "x", "y"),
        (Fact::PageSize, "16", "128"),
        (Fact::KvCacheDtype, "auto", "fp8_e4m3"),
    ];
    let asked = |engine| {
        let differs = |(fact, one, other): &(Fact, &str, &str)| {
            let of = |id, role, value| One::new(id, role, "kv", &[(*fact, value)]);
            !drifted(engine, &[of(1, Role::Prefill, *one), of(2, Role::Decode, *other)]).is_empty()
        };
        said.iter().filter(|fact| differs(fact)).map(|(fact, ..)| fact.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(asked(EngineKind::Sglang), ["transfer_backend", "page_size", "kv_cache_dtype"]);
    assert_eq!(asked(NIXL), ["model", "version", "transfer_backend", "kv_cache_dtype"]);
    assert_eq!(asked(STORE), ["model", "transfer_backend", "kv_cache_dtype"]);
}

#[test]
fn a_revision_of_one_role_is_alike_in_everything() {
    for fact in Fact::ALL.into_iter().filter(|fact| *fact != Fact::Role) {
        let of = |id, role, value| One { revision: "r1", ..One::new(id, role, "", &[(fact, value)]) };
        let all = [of(1, Role::Decode, "a"), of(2, Role::Decode, "b"), of(3, Role::Prefill, "c")];
        assert_eq!(drifted(NIXL, &all), [(2, fact.as_str())]);
    }
}

#[test]
fn an_engine_of_another_role_is_out_and_has_no_vote() {
    let of = |id, label, says: &str, size| {
        One::new(id, label, "kv", &[(Fact::Role, says), (Fact::PageSize, size)])
    };
    let all = [
        of(1, Role::Decode, "prefill", "64"),
        of(2, Role::Decode, "decode", "1"),
        of(3, Role::Mixed, "decode", "64"),
    ];
    assert_eq!(drifted(EngineKind::Sglang, &all), [(1, "role"), (3, "role")]);
}

/// Where each of three is outvoted on another fact, not all of them go.
#[test]
fn who_is_outvoted_on_a_fact_has_no_vote_on_the_next() {
    let of = |id, backend, size, dtype| {
        let said = [(Fact::TransferBackend, backend), (Fact::PageSize, size), (Fact::KvCacheDtype, dtype)];
        One::new(id, Role::Decode, "kv", &said)
    };
    let all = [of(1, "x", "2", "a"), of(2, "x", "1", "b"), of(3, "y", "1", "a")];
    assert_eq!(drifted(EngineKind::Sglang, &all), [(2, "page_size"), (3, "transfer_backend")]);
}

/// Role, revision, token, creation, what it says.
type Drawn = (usize, usize, usize, i64, Vec<Option<&'static str>>);

fn fleets() -> impl Strategy<Value = Vec<One>> {
    let value = || proptest::option::of(prop_oneof![4 => Just("a"), 1 => Just("b"), 1 => Just("c")]);
    let one = (0..3usize, 0..3usize, 0..3usize, 0..4i64, proptest::collection::vec(value(), Fact::ALL.len()));
    proptest::collection::vec(one, 0..12).prop_map(|all| {
        let make = |(id, (role, revision, token, created, values)): (usize, Drawn)| {
            let mut one = One::new(id as u64, Role::ALL[role], ["", "t1", "t2"][token], &[]);
            (one.revision, one.created) = (["", "r1", "r2"][revision], created);
            for (fact, value) in Fact::ALL.into_iter().zip(values) {
                // A wrong role now and then.
                let role = one.role.as_str();
                let value =
                    if fact == Fact::Role { value.filter(|v| *v == "b").or(Some(role)) } else { value };
                one.facts.set(fact, value.unwrap_or_default());
            }
            one
        };
        all.into_iter().enumerate().map(make).collect()
    })
}

proptest! {
    #[test]
    fn the_order_of_claims_does_not_matter(
        (all, shuffled) in fleets().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
    ) {
        for engine in [EngineKind::Sglang, NIXL, STORE] {
            prop_assert_eq!(drifted(engine, &all), drifted(engine, &shuffled));
        }
    }

    #[test]
    fn without_those_that_contradict_the_others_agree_and_no_label_is_left_without_any(all in fleets()) {
        for engine in [EngineKind::Sglang, NIXL, STORE] {
            let out = drifted(engine, &all);
            let mut rest = all.clone();
            rest.retain(|one| !out.iter().any(|(id, _)| *id == one.id));
            prop_assert_eq!(drifted(engine, &rest), vec![]);
            // By hand: any two that are left agree on what their labels say is alike.
            for (a, b) in rest.iter().flat_map(|a| rest.iter().map(move |b| (a, b))) {
                let of_token = !a.token.is_empty() && a.token == b.token;
                let of_revision = !a.revision.is_empty() && (a.role, a.revision) == (b.role, b.revision);
                for fact in Fact::ALL {
                    let alike = of_revision || of_token && paired(engine).contains(&fact);
                    let (one, other) = (a.facts.get(fact), b.facts.get(fact));
                    prop_assert!(!alike || one.is_none() || other.is_none() || one == other, "{:?} {:?}", a, b);
                }
            }
            // Where there is one label only.
            let honest = |one: &&One| one.facts.get(Fact::Role) == Some(one.role.as_str());
            for token in ["t1", "t2"] {
                let group: Vec<One> = all.iter().filter(honest).filter(|one| one.token == token).cloned().collect();
                let alone: Vec<One> = group.iter().cloned().map(|one| One { revision: "", ..one }).collect();
                prop_assert!(alone.is_empty() || drifted(engine, &alone).len() < alone.len());
            }
        }
    }

    #[test]
    fn who_agrees_or_says_nothing_is_never_out(all in fleets()) {
        let mut all = all;
        for one in &mut all {
            for fact in Fact::ALL {
                let role = one.role.as_str();
                let value = if fact == Fact::Role { role } else { "a" };
                let known = one.facts.get(fact).is_some();
                one.facts.set(fact, if known { value } else { "" });
            }
        }
        for engine in [EngineKind::Sglang, NIXL, STORE] {
            prop_assert_eq!(drifted(engine, &all), vec![]);
        }
    }
}
