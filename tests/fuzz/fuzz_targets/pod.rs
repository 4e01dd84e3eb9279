//! What an API server sends: lists, events, Pods. Nothing of it may end the process, whatever it is; what can be read is judged
//! by the rules of every dialect, and an endpoint that comes of it can be dialled.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use tandem::config::{Dialect, EngineKind, PodDiscovery, Service};
use tandem::discovery::Rules;
use tandem::discovery::judge::{Context, Verdict, judge};
use tandem::discovery::kube::{decode_list, is_event};
use tandem::discovery::pod::{decode, identity};

const DIALECTS: [Dialect; 7] = [
    Dialect::Tandem,
    Dialect::Gpustack,
    Dialect::Ome,
    Dialect::Infera,
    Dialect::LlmD,
    Dialect::Sglang,
    Dialect::Vllm,
];

fuzz_target!(|data: &[u8]| {
    let _ = is_event(data);
    let wanted = ["tandem.dev/ports".to_owned(), "infera.amd.com/worker-info".to_owned()];
    if let Ok((_, pods, bad)) = decode_list(data, &wanted) {
        assert!(pods.iter().all(|pod| !pod.id.uid.is_empty()));
        assert!(bad.iter().all(|(_, why)| !why.is_empty()));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = identity(text);
    let Ok(pod) = decode(text, &wanted) else { return };
    for dialect in DIALECTS {
        for engine in [EngineKind::Plain, EngineKind::Sglang] {
            let pods = Some(PodDiscovery::of(dialect, BTreeMap::new()));
            let service = Service { engine, pods, ..Service::plain("s", Vec::new()) };
            let Some(rules) = Rules::of(0, &service) else { continue };
            let (_, verdict) = judge(&pod, &rules, Context::default());
            let Verdict::Register(listeners) = verdict else { continue };
            assert!(!pod.deleting && !listeners.is_empty() && listeners.len() <= 64);
            for listener in listeners {
                assert!(listener.port != 0 && listener.bootstrap_port != Some(0));
                let authority: http::uri::Authority = listener.authority().parse().expect("an authority");
                assert_eq!(authority.port_u16(), Some(listener.port));
            }
        }
    }
});
