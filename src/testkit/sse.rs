//! Server-sent events, parsed by the WHATWG rules and nothing looser: the judge of what a client would see.
//!
//! Dispatch is on the blank line only, so an event that was cut off is not an event; comments and blocks
//! without data give nothing; CR, LF and CRLF all end a line; one leading BOM is skipped.

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `message` unless named.
    pub kind: String,
    /// Data lines joined by LF.
    pub data: String,
    /// The last id seen so far in the stream.
    pub id: String,
}

impl Event {
    /// The data as JSON; panics, showing it, when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in event {:?}", self.data))
    }

    pub fn is_done(&self) -> bool {
        self.data == "[DONE]"
    }
}

/// The events of a whole stream; panics when it is not UTF-8, which the rules would paper over.
pub fn parse(stream: &[u8]) -> Vec<Event> {
    let text = std::str::from_utf8(stream).unwrap_or_else(|error| panic!("event stream: {error}"));
    let mut parser = Parser::default();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    // A last line without its end is never processed.
    while let Some((line, after)) = next_line(rest) {
        parser.line(line);
        rest = after;
    }
    parser.events
}

/// The comments of a stream, without their colon.
pub fn comments(stream: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(stream);
    text.lines().filter_map(|line| line.strip_prefix(':')).map(str::to_owned).collect()
}

/// The text of a chat stream: every `choices[0].delta.content`, joined.
pub fn chat_text(events: &[Event]) -> String {
    let chunks = events.iter().filter(|event| !event.is_done()).map(Event::json);
    chunks.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

fn next_line(text: &str) -> Option<(&str, &str)> {
    let at = text.find(['\r', '\n'])?;
    let end = if text[at..].starts_with("\r\n") { at + 2 } else { at + 1 };
    Some((&text[..at], &text[end..]))
}

#[derive(Debug, Default)]
struct Parser {
    data: String,
    kind: String,
    id: String,
    events: Vec<Event>,
}

impl Parser {
    fn line(&mut self, line: &str) {
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "event" => value.clone_into(&mut self.kind),
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            // A comment has an empty field name; `retry` and unknown fields say nothing about events.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let kind = std::mem::take(&mut self.kind);
        let mut data = std::mem::take(&mut self.data);
        if data.pop().is_none() {
            return;
        }
        let kind = if kind.is_empty() { "message".to_owned() } else { kind };
        self.events.push(Event { kind, data, id: self.id.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(stream: &str) -> Vec<String> {
        parse(stream.as_bytes()).into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn every_line_end_counts_and_data_lines_join() {
        assert_eq!(data("data: a\ndata:b\n\ndata:  c\r\n\r\ndata\r\r"), ["a\nb", " c", ""]);
    }

    #[test]
    fn comments_retry_and_blocks_without_data_are_no_events() {
        assert_eq!(data(": hi\n\nretry: 5\n\nevent: ping\n\ndata: x\n\n"), ["x"]);
        assert_eq!(comments(b": hi\n\ndata: x\n\n"), [" hi"]);
    }

    #[test]
    fn an_event_without_its_blank_line_is_lost() {
        assert_eq!(data("data: a\n\ndata: b\n"), ["a"]);
    }

    #[test]
    fn kind_and_id_follow_the_rules() {
        let events = parse("\u{feff}event: error\nid: 7\ndata: x\n\ndata: y\n\n".as_bytes());
        assert_eq!((events[0].kind.as_str(), events[0].id.as_str()), ("error", "7"));
        assert_eq!((events[1].kind.as_str(), events[1].id.as_str()), ("message", "7"));
    }
}
