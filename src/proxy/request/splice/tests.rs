//! The properties (any key order, escapes, depth, numbers, white space) run through `oracle` in `peek/tests.rs`; here
//! are the shapes by name.

use super::*;
use crate::proxy::request::key::Key;
use crate::proxy::request::peek::peek;

fn edited(body: &str, edit: impl FnOnce(&mut Splice<'_>, &Peek)) -> String {
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let peek = peek(&bytes).unwrap();
    let mut splice = Splice::new(&bytes, &peek);
    edit(&mut splice, &peek);
    let out = splice.finish();
    assert_eq!(out.len(), out.to_vec().len());
    String::from_utf8(out.to_vec()).unwrap()
}

fn removed(body: &str, keys: &[Key]) -> String {
    edited(body, |splice, peek| {
        for &key in keys {
            splice.remove(peek.member(key).unwrap());
        }
    })
}

#[test]
fn removing_takes_exactly_one_comma() {
    let body = "{ \"n\":1 , \"x\":2 , \"user\":3 , \"rid\":4 }";
    assert_eq!(removed(body, &[Key::N]), "{  \"x\":2 , \"user\":3 , \"rid\":4 }");
    assert_eq!(removed(body, &[Key::User]), "{ \"n\":1 , \"x\":2  , \"rid\":4 }");
    assert_eq!(removed(body, &[Key::Rid]), "{ \"n\":1 , \"x\":2 , \"user\":3  }");
    assert_eq!(removed(body, &[Key::Rid, Key::N]), "{  \"x\":2 , \"user\":3  }");
    assert_eq!(removed(body, &[Key::User, Key::Rid, Key::N]), "{  \"x\":2   }");
}

#[test]
fn removing_all_leaves_an_empty_object() {
    assert_eq!(removed("{\"n\":1}", &[Key::N]), "{}");
    assert_eq!(removed(" {\"n\":1,\"user\":2,\"rid\":3}\n", &[Key::Rid, Key::N, Key::User]), " {}\n");
    assert_eq!(removed("{\"n\":1,\"user\":2,\"rid\":3}", &[Key::User, Key::N]), "{\"rid\":3}");
}

#[test]
fn appended_members_stand_last_with_commas_only_between() {
    let add = |s: &mut Splice<'_>| {
        s.append(Bytes::from_static(b"\"a\":1,\"b\":2"))
            .append(Bytes::new())
            .append(Bytes::from_static(b"\"c\":3"));
    };
    assert_eq!(edited("{}", |s, _| add(s)), "{\"a\":1,\"b\":2,\"c\":3}");
    assert_eq!(edited("{ \n} ", |s, _| add(s)), "{ \n\"a\":1,\"b\":2,\"c\":3} ");
    assert_eq!(edited("{\"x\":0 }", |s, _| add(s)), "{\"x\":0 ,\"a\":1,\"b\":2,\"c\":3}");
    let all_gone = edited("{\"n\":1,\"user\":2}", |s, p| {
        for member in &p.members {
            s.remove(member);
        }
        add(s);
    });
    assert_eq!(all_gone, "{\"a\":1,\"b\":2,\"c\":3}");
}

#[test]
fn removing_wins_over_replacing_and_the_first_replacement_stands() {
    let out = edited("{\"n\":1,\"user\":2}", |s, p| {
        let (n, user) = (p.member(Key::N).unwrap(), p.member(Key::User).unwrap());
        s.replace(n, Bytes::from_static(b"7")).replace(n, Bytes::from_static(b"8"));
        s.replace(user, Bytes::from_static(b"9")).remove(user).remove(user);
    });
    assert_eq!(out, "{\"n\":7}");
}

#[test]
fn b133_router_owned_keys_are_cut_out_and_nothing_else() {
    let body = "{\"bootstrap_host\":\"evil\",\"m\":1.0,\"kv_transfer_params\":{\"a\":[1,2]},\"bootstrap\\u005froom\" : 7}";
    let bytes = Bytes::from(body);
    let out = without_owned(&bytes, &peek(&bytes).unwrap());
    assert_eq!(out.to_vec(), b"{\"m\":1.0}");
}

#[test]
fn b137_b140_a_body_without_router_owned_keys_is_the_very_same_buffer() {
    let body = Bytes::from(
        "{\"return_token_ids\":true, \"top_k\":-1,\"chat_template_kwargs\":{\"enable_thinking\":false},\
         \"vendor_x\":{\"a\":[1,null]},\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"arguments\":\"{\\\"a\\\":1}\"}]}]}",
    );
    let out = without_owned(&body, &peek(&body).unwrap());
    let pieces: Vec<_> = out.iter().collect();
    assert_eq!(pieces.len(), 1);
    assert_eq!((pieces[0].as_ptr(), pieces[0].len()), (body.as_ptr(), body.len()));
}

#[test]
fn b131_digits_around_an_edit_stay() {
    let body = format!("{{\"seed\":{0},\"data_parallel_rank\":{0},\"x\":[1e400,{0}]}}", "9".repeat(60));
    assert_eq!(
        removed(&body, &[Key::DataParallelRank]),
        format!("{{\"seed\":{0},\"x\":[1e400,{0}]}}", "9".repeat(60))
    );
}

#[test]
fn a_member_of_another_body_does_not_panic() {
    let (long, short) = (Bytes::from("{\"x\":\"aaaaaaaaaaaaaaaa\",\"n\":1}"), Bytes::from("{}"));
    let foreign = peek(&long).unwrap();
    let mut splice = Splice::new(&short, &foreign);
    splice.remove(foreign.member(Key::N).unwrap()).append(Bytes::from_static(b"\"a\":1"));
    drop(splice.finish());
}
