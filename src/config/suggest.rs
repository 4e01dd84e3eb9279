//! "Did you mean": the nearest known word, when it is near enough to be a likely slip.

/// The candidate nearest to `word`, if it differs by at most a third of the word (and always by one or two letters
/// for short words). `-` and `_` count as the same letter.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    let allowance = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, candidate)| {
            *distance <= allowance || (word.len() >= 4 && candidate.starts_with(&word))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, delete, replace or swap with their neighbour to turn `a` into `b` (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_word_and_strangers_find_none() {
        let words = ["listen", "limits", "timeouts", "in_flight", "api_keys_file"];
        assert_eq!(nearest("lisetn", words), Some("listen"));
        assert_eq!(nearest("timeout", words), Some("timeouts"));
        assert_eq!(nearest("In-Flight", words), Some("in_flight"));
        assert_eq!(nearest("api_keys", words), Some("api_keys_file"));
        assert_eq!(nearest("kafka", words), None);
        assert_eq!(nearest("", words), None);
    }
}
