use super::*;

fn fault(text: &str) -> Option<(Wrong, usize)> {
    let mut scan = Scan::new(text.as_bytes());
    let result = scan.value(0);
    let result =
        result.and_then(|()| if scan.peek().is_some() { scan.fault(Wrong::Trailing) } else { Ok(()) });
    result.err().map(|f| (f.wrong, f.at))
}

#[test]
fn well_formed_values_pass() {
    for ok in [
        "0",
        "-0",
        "-0.0e-0",
        "1E+9",
        "1e400",
        "18446744073709551616",
        " [ ] ",
        "{}",
        "[{},[],{\"a\":[]}]",
        "\"\"",
        "null",
        "true",
        "false",
        "\"\\u0000\\ud83d\\\\\\\"\\/\"",
        "\"数─\u{200c}\"",
        "\"\u{7f}\"",
        "{\"\":{\"\":\"\"}}",
        "[1 , 2\n,\t3\r]",
    ] {
        assert_eq!(fault(ok), None, "{ok}");
    }
}

#[test]
fn a_fault_is_named_with_its_place() {
    for (text, wrong, at) in [
        ("", Wrong::End, 0),
        (" [1,", Wrong::End, 4),
        ("[1,]", Wrong::Byte, 3),
        ("[,1]", Wrong::Byte, 1),
        ("[1 2]", Wrong::Byte, 3),
        ("[1}", Wrong::Byte, 2),
        ("{\"a\":1,}", Wrong::Byte, 7),
        ("{\"a\"}", Wrong::Byte, 4),
        ("{\"a\":}", Wrong::Byte, 5),
        ("{a:1}", Wrong::Byte, 1),
        ("{1:1}", Wrong::Byte, 1),
        ("{\"a\":1]", Wrong::Byte, 6),
        ("01", Wrong::Trailing, 1),
        ("1.", Wrong::End, 2),
        ("-", Wrong::End, 1),
        ("-a", Wrong::Byte, 1),
        ("[1.e1]", Wrong::Byte, 3),
        ("[1e]", Wrong::Byte, 3),
        ("+1", Wrong::Byte, 0),
        (".5", Wrong::Byte, 0),
        ("NaN", Wrong::Byte, 0),
        ("Infinity", Wrong::Byte, 0),
        ("tru", Wrong::End, 3),
        ("nulL", Wrong::Byte, 3),
        ("'a'", Wrong::Byte, 0),
        ("\"a", Wrong::End, 2),
        ("\"a\\", Wrong::End, 3),
        ("\"\\x\"", Wrong::Escape, 1),
        ("\"\\u12g4\"", Wrong::Escape, 1),
        ("\"\\u12", Wrong::End, 5),
        ("\"a\nb\"", Wrong::Control, 2),
        ("\"\0\"", Wrong::Control, 1),
        ("1 //", Wrong::Trailing, 2),
    ] {
        assert_eq!(fault(text), Some((wrong, at)), "{text}");
    }
}

#[test]
fn broken_utf8_is_found_inside_any_string() {
    let long = "a".repeat(200);
    for bad in [&b"\xff"[..], b"\xe6\x95", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80"] {
        for (before, after) in [("", ""), (&*long, ""), ("", &*long), (&*long, &*long), ("数", "数")] {
            let text = [b"[\"", before.as_bytes(), bad, after.as_bytes(), b"\"]"].concat();
            let fault = Scan::new(&text).value(0).unwrap_err();
            assert_eq!((fault.wrong, fault.at), (Wrong::Utf8, 2 + before.len()), "{text:?}");
        }
    }
}

#[test]
fn b40_nesting_ends_at_the_limit_of_serde_json_and_costs_no_stack() {
    let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    let objects = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
    for text in [deep(127), objects(127)] {
        assert_eq!(fault(&text), None);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
    for text in [deep(128), objects(128), deep(10_000), objects(10_000), "[".repeat(1_000_000)] {
        assert_eq!(fault(&text).map(|f| f.0), Some(Wrong::Depth));
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_err());
    }
}

proptest::proptest! {
    /// Lists of numbers have a way of their own through the scanner.
    #[test]
    fn lists_of_numbers_end_and_fail_where_serde_json_says(
        numbers in proptest::collection::vec("0|[1-9][0-9]{0,8}|-[1-9]|[0-9]{2,3}|[1-9]\\.[0-9]", 1..40),
        gaps in proptest::collection::vec(",|, | ,|,  |,\n|,\"a\",|,\\[3,4\\],|;", 40),
        nested in proptest::bool::ANY,
    ) {
        let mut list = String::new();
        for (number, gap) in numbers.iter().zip(&gaps) {
            list += number;
            list += gap;
        }
        list += "7";
        let text = if nested { format!("{{\"a\":[[{list}],2]}}") } else { format!("[{list}]") };
        let known = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        proptest::prop_assert_eq!(fault(&text).is_none(), known, "{}", text);
    }
}
