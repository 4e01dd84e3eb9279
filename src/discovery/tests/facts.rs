use proptest::prelude::*;

use super::*;
use crate::config::VllmConnector;

const SGLANG: &str = include_str!("../../../tests/fixtures/facts/sglang-server-info.json");
const METRICS: &str = include_str!("../../../tests/fixtures/facts/vllm-metrics.txt");
const ENGINES: [EngineKind; 2] = [EngineKind::Sglang, EngineKind::Vllm(VllmConnector::Nixl)];

fn read(with: Read, body: &str) -> Vec<(&'static str, String)> {
    let mut facts = EngineFacts::default();
    with(body.as_bytes(), &mut facts);
    let known = Fact::ALL.into_iter().filter_map(|fact| Some((fact.as_str(), facts.get(fact)?.to_owned())));
    known.collect()
}

fn pairs(all: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    all.iter().map(|(fact, value)| (*fact, (*value).to_owned())).collect()
}

#[test]
fn sglang_says_what_it_was_started_with() {
    let alone = [
        ("role", "mixed"),
        ("model", "tiny"),
        ("version", "0.5.23"),
        ("page_size", "1"),
        ("kv_cache_dtype", "auto"),
    ];
    assert_eq!(read(sglang, SGLANG), pairs(&alone));
    let prefill = SGLANG.replace(r#""disaggregation_mode":"null""#, r#""disaggregation_mode":"prefill""#);
    let said = read(sglang, &prefill);
    assert!(said.contains(&("role", "prefill".to_owned())), "{said:?}");
    assert!(said.contains(&("transfer_backend", "mooncake".to_owned())), "{said:?}");
    let revised = SGLANG.replace(r#""revision":null"#, r#""revision":"abc""#);
    assert!(read(sglang, &revised).contains(&("model_revision", "abc".to_owned())));
}

#[test]
fn vllm_says_it_in_four_places() {
    assert_eq!(read(vllm_metrics, METRICS), pairs(&[("page_size", "128"), ("kv_cache_dtype", "auto")]));
    let labels = r#"model_name="tiny",engine="0",kv_connector="NixlConnector",kv_role="kv_both",compatibility_hash="9f2c""#;
    let with_hash = format!("{METRICS}\nvllm:nixl_config_info{{{labels}}} 1.0\n");
    let all = [("kv_compatibility", "9f2c"), ("page_size", "128"), ("kv_cache_dtype", "auto")];
    assert_eq!(read(vllm_metrics, &with_hash), pairs(&all));
    assert_eq!(read(vllm_version, r#"{"version":"0.32.0"}"#), pairs(&[("version", "0.32.0")]));
    let models = r#"{"object":"list","data":[
        {"id":"lora","root":"/adapters/a","parent":"tiny"},
        {"id":"tiny","root":"/models/tiny","parent":null}]}"#;
    assert_eq!(read(vllm_models, models), pairs(&[("model", "/models/tiny")]));
    let config = |transfer: &str| {
        format!(
            r#"{{"vllm_config":{{"model_config":{{"revision":"abc"}},"kv_transfer_config":{transfer}}},"vllm_env":{{}}}}"#
        )
    };
    let producer = config(r#"{"kv_connector":"NixlConnector","kv_role":"kv_producer"}"#);
    let all = [("role", "prefill"), ("model_revision", "abc"), ("transfer_backend", "NixlConnector")];
    assert_eq!(read(vllm_config, &producer), pairs(&all));
    for nothing_more in ["null", r#"{"kv_connector":"MultiConnector","kv_role":"kv_both"}"#] {
        assert_eq!(read(vllm_config, &config(nothing_more)), pairs(&[("model_revision", "abc")]));
    }
}

#[test]
fn what_is_of_another_form_is_not_known() {
    for engine in ENGINES {
        for (path, with) in questions(engine) {
            for body in [
                "",
                "null",
                "[]",
                "{}",
                "Not Found",
                r#"{"detail":"Not Found"}"#,
                r#"{"version":null,"data":[],"page_size":[1],"disaggregation_mode":"encode"}"#,
                r#"{"version":{},"data":[{"root":null}],"vllm_config":"text"}"#,
                "vllm:cache_config_info{",
                "vllm:cache_config_info{block_size=\"None\",cache_dtype=\"\"} 1.0",
            ] {
                assert_eq!(read(*with, body), [], "{path}: {body}");
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_harm(body in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..900) {
        for engine in ENGINES {
            for (_, with) in questions(engine) {
                for recorded in [SGLANG, METRICS] {
                    let mut changed = recorded.as_bytes().to_vec();
                    let at = at.min(changed.len());
                    changed.splice(at..(at + body.len()).min(recorded.len()), body.iter().copied());
                    let mut facts = EngineFacts::default();
                    with(&changed, &mut facts);
                    prop_assert!(Fact::ALL.iter().all(|fact| facts.get(*fact).is_none_or(|value| value.len() <= 200)));
                }
            }
        }
    }
}
