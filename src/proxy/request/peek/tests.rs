use super::*;
use crate::proxy::request::oracle;
use proptest::prelude::*;

fn refused(body: impl AsRef<[u8]>) -> PeekError {
    oracle::check(body.as_ref());
    peek(body.as_ref()).unwrap_err()
}

fn taken(body: &str) -> Peek {
    oracle::check(body.as_bytes());
    peek(body.as_bytes()).unwrap()
}

#[test]
fn routed_keys_are_found_wherever_they_stand() {
    let body = " {\"a\":[{\"model\":\"inner\"}], \"stream\" : true ,\"n\":2,\"model\":\"m\\u00e9\\n\",\"best_of\":2.0}\n";
    let peek = taken(body);
    assert_eq!(peek.model.as_deref(), Some("mé\n"));
    assert!(peek.stream);
    assert_eq!((peek.n, peek.best_of), (Count::Is(2), Count::Odd));
    let member = peek.member(Key::Stream).unwrap();
    assert_eq!(member.name.of(body.as_bytes()), b"\"stream\"");
    assert_eq!(member.value.of(body.as_bytes()), b"true");
    assert_eq!(peek.member(Key::User), None);
}

#[test]
fn members_that_only_the_configuration_knows_are_found() {
    let wanted = ["user".to_owned(), "session".to_owned()];
    let body = br#"{"x":{"session":"in"},"session":"a\"b","user":-1.5e3,"session":"last","z":[]}"#;
    let seen = peek_for(body, &wanted).unwrap();
    assert_eq!(seen.identity(0, body), Some(&b"-1.5e3"[..]));
    assert_eq!(seen.identity(1, body), Some(&b"last"[..]));
    assert_eq!((seen.identity(2, body), peek(body).unwrap().identity(0, body)), (None, None));
    for none in ["null", "true", "[1]", "{}", "\"\""] {
        let body = format!("{{\"user\":{none}}}").into_bytes();
        assert_eq!(peek_for(&body, &wanted).unwrap().identity(0, &body), None, "{none}");
    }
}

#[test]
fn absent_and_null_are_the_same() {
    for body in ["{}", "{\"model\":null,\"stream\":null,\"n\":null}"] {
        let peek = taken(body);
        assert_eq!((peek.model.as_deref(), peek.stream, peek.n), (None, false, Count::Absent), "{body}");
    }
}

#[test]
fn b40_a_body_that_is_no_json_object_is_refused_with_the_place() {
    let cases: [(&[u8], &str); 17] = [
        (b"", "the request body is empty; a JSON object is expected"),
        (b" \n", "the request body is empty; a JSON object is expected"),
        (b"\0", "the request body must be a JSON object, but byte 0 is 0x00"),
        (b"[]", "the request body must be a JSON object, but byte 0 is '['"),
        (b" \"str\"", "the request body must be a JSON object, but byte 1 is '\"'"),
        (b"null", "the request body must be a JSON object, but byte 0 is 'n'"),
        (b"\xef\xbb\xbf{}", "the request body begins with a byte order mark; JSON is sent without one"),
        (b"{", "the request body is not valid JSON: unexpected end at byte 1"),
        (b"{\"a\":\"\xe6\x95", "the request body is not valid JSON: unexpected end at byte 8"),
        (b"{\"a\":\"\xe6\x95\"}", "the request body is not valid JSON: invalid UTF-8 at byte 6"),
        (b"{\"a\":1}}", "the request body is not valid JSON: unexpected data after the object at byte 7"),
        (b"{\"a\":1}\0", "the request body is not valid JSON: unexpected data after the object at byte 7"),
        (b"{\"a\" 1}", "the request body is not valid JSON: unexpected character at byte 5"),
        (b"{\"model\":3}", "the value of \"model\" at byte 9 must be a string"),
        (b"{\"model\":[\"m\"]}", "the value of \"model\" at byte 9 must be a string"),
        (b"{\"stream\":\"true\"}", "the value of \"stream\" at byte 10 must be true or false"),
        (b"{\"stream\":1}", "the value of \"stream\" at byte 10 must be true or false"),
    ];
    for (body, message) in cases {
        assert_eq!(refused(body).to_string(), message);
    }
    assert_eq!((refused("{").code(), refused("{").param()), ("invalid_json", None));
    let wrong = refused("{\"model\":{}}");
    assert_eq!((wrong.code(), wrong.param()), ("invalid_type", Some("model")));
}

#[test]
fn b40_deep_nesting_is_refused_and_the_limit_is_told() {
    let body = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(refused(&body).to_string().ends_with("nested too deeply at byte 131 (the limit is 127 levels)"));
    let body = format!("{{\"a\":{}{}}}", "[".repeat(126), "]".repeat(126));
    taken(&body);
}

#[test]
fn b133_a_second_known_key_is_refused_in_any_spelling() {
    for (body, key) in [
        ("{\"model\":\"cheap\",\"messages\":[],\"model\":\"gpu-big\"}", "model"),
        ("{\"model\":\"cheap\",\"mod\\u0065l\":\"gpu-big\"}", "model"),
        ("{\"mod\\u0065l\":\"cheap\",\"\\u006dodel\":null}", "model"),
        ("{\"stream\":true,\"stream\":true}", "stream"),
        ("{\"max_tokens\":1,\"max_tokens\":2}", "max_tokens"),
        ("{\"bootstrap_room\":1,\"bootstrap\\u005froom\":2}", "bootstrap_room"),
    ] {
        let error = refused(body);
        assert_eq!((error.code(), error.param()), ("duplicate_key", Some(key)), "{body}");
    }
    for &key in Key::ALL {
        let error = refused(format!("{{\"{0}\":null,\"x\":1,\"{0}\":null}}", key.as_str()));
        assert_eq!(error.param(), Some(key.as_str()));
    }
}

#[test]
fn b133_second_unknown_or_inner_keys_are_not_our_business() {
    taken("{\"a\":1,\"a\":2,\"x\":{\"model\":1,\"model\":2}}");
}

#[test]
fn b130_lone_surrogates_pass_in_forwarded_text_and_not_in_the_model() {
    taken("{\"messages\":[{\"content\":\"\\ud83d \\udc00a \\u0000 é e\u{301}\"}],\"\\ud83d\":1}");
    assert_eq!(refused("{\"model\":\"\\ud83d\"}").param(), Some("model"));
}

#[test]
fn b131_numbers_of_any_size_pass() {
    let sixty = "1".repeat(60);
    for n in ["9007199254740993", "18446744073709551616", "-9223372036854775809", "1e400", &sixty] {
        taken(&format!("{{\"seed\":{n},\"metadata\":{{\"x\":[{n}]}},\"n\":{n}}}"));
    }
}

#[test]
fn b127_b128_model_names_of_any_text_and_length_are_kept_whole() {
    for model in ["模型-β [x]", "a\u{200c}b", "👩‍👩‍👧", &"─".repeat(3_000), ""] {
        assert_eq!(taken(&format!("{{\"model\":\"{model}\"}}")).model.as_deref(), Some(model));
    }
    assert_eq!(taken("{\"model\":\"a\\r\\nb\"}").model.as_deref(), Some("a\r\nb"));
}

#[test]
fn b142_many_tools_with_odd_schemas_are_not_judged() {
    let tool = format!(
        "{{\"type\":\"function\",\"function\":{{\"name\":\"f\",\"description\":\"{}\"}}}}",
        "x".repeat(14_000)
    );
    taken(&format!("{{\"model\":\"m\",\"tools\":[{}]}}", vec![tool; 27].join(",")));
}

#[test]
fn every_prefix_of_a_body_is_refused() {
    let body = "{ \"model\" : \"m\\n数\" ,\"a\":[1.5e3,{\"b\":null}], \"kv_transfer_params\":{} }";
    taken(body);
    for end in 0..body.len() {
        refused(&body.as_bytes()[..end]);
    }
}

#[test]
fn the_seeds_of_the_fuzz_target_hold() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/corpus/peek_splice");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        oracle::check(&std::fs::read(file.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen >= 10, "{seen} seeds");
}

/// White space, often none.
fn space() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 1 => "[ \n\t\r]{1,3}"]
}

fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z]{0,90}",
        "[ -~&&[^\"\\\\]]{0,20}",
        "(\\\\[\"\\\\/bfnrt]){1,3}",
        "\\\\u[0-9a-fA-F]{4}",
        "[数─é\u{200c}😀]{1,30}",
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn key() -> impl Strategy<Value = String> {
    let known = prop::sample::select(Key::ALL).prop_map(|k| format!("\"{}\"", k.as_str()));
    let escaped = (prop::sample::select(Key::ALL), any::<prop::sample::Index>()).prop_map(|(key, place)| {
        let name = key.as_str();
        let at = place.index(name.len());
        format!("\"{}\\u{:04x}{}\"", &name[..at], name.as_bytes()[at], &name[at + 1..])
    });
    prop_oneof![4 => known, 1 => escaped, 3 => string()]
}

fn value() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        Just("18446744073709551616".to_owned()),
        Just("1e400".to_owned()),
        "-?(0|[1-9][0-9]{0,59})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
    ];
    let leaf = prop_oneof![
        number,
        string(),
        prop::sample::select(&["true", "false", "null"][..]).prop_map(str::to_owned)
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        let spaced = (space(), inner.clone(), space()).prop_map(|(a, v, b)| a + &v + &b);
        let item = (space(), string(), space(), inner).prop_map(|(a, k, b, v)| format!("{a}{k}{b}:{v}"));
        prop_oneof![
            prop::collection::vec(spaced, 0..5).prop_map(|v| format!("[{}]", v.join(","))),
            prop::collection::vec(item, 0..5).prop_map(|v| format!("{{{}}}", v.join(","))),
        ]
    })
}

fn body() -> impl Strategy<Value = String> {
    let member = (space(), key(), space(), space(), value(), space())
        .prop_map(|(a, k, b, c, v, d)| format!("{a}{k}{b}:{c}{v}{d}"));
    (space(), prop::collection::vec(member, 0..8), space())
        .prop_map(|(a, m, b)| format!("{a}{{{}}}{b}", m.join(",")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_object_is_judged_and_edited_as_by_serde_json(body in body()) {
        oracle::check(body.as_bytes());
    }

    #[test]
    fn any_damaged_object_is_judged_as_by_serde_json(
        body in body(), at in any::<prop::sample::Index>(), by in any::<u8>(), how in 0..4u8,
    ) {
        let mut bytes = body.into_bytes();
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = by,
            1 => bytes.insert(at, by),
            2 => drop(bytes.remove(at)),
            _ => bytes.truncate(at),
        }
        oracle::check(&bytes);
    }
}
