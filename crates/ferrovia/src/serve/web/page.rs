//! The one file that is the page, and the policy that lets a browser run that and nothing else.

use bytes::Bytes;
use http::HeaderValue;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");

/// The page with its policy.
#[derive(Debug)]
pub(super) struct Page {
    policy: HeaderValue,
}

impl Page {
    pub(super) fn new() -> Self {
        let script = source(between(PAGE, "<script>", "</script>"));
        let style = source(between(PAGE, "<style>", "</style>"));
        let policy = format!(
            "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        );
        // Hashes and words are plain ASCII; without a policy nothing would be allowed to run, which is the safe side.
        let nothing = HeaderValue::from_static("default-src 'none'");
        Self {
            policy: HeaderValue::from_str(&policy).unwrap_or(nothing),
        }
    }

    pub(super) fn text(&self) -> Bytes {
        Bytes::from_static(PAGE.as_bytes())
    }

    pub(super) fn policy(&self) -> &HeaderValue {
        &self.policy
    }
}

/// What stands between the first two such tags.
fn between<'a>(text: &'a str, open: &str, close: &str) -> &'a str {
    let inside = text
        .split_once(open)
        .and_then(|(_, rest)| rest.split_once(close));
    inside.map_or("", |(inside, _)| inside)
}

/// The way a policy names a text.
fn source(text: &str) -> String {
    format!("'sha256-{}'", base64(&Sha256::digest(text)))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = (0..3).fold(0_u32, |number, i| {
            number << 8 | u32::from(chunk.get(i).copied().unwrap_or_default())
        });
        for i in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_others_write_it() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn the_page_is_one_file_without_holes() {
        for tag in ["<script", "<style"] {
            assert_eq!(PAGE.matches(tag).count(), 1, "{tag}");
        }
        // Data must never become markup, and nothing may come from elsewhere.
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "https://",
            "style=\"",
            "onclick=\"",
        ] {
            assert!(!PAGE.contains(word), "{word}");
        }
        let policy = Page::new();
        let policy = policy.policy().to_str().unwrap();
        assert!(policy.contains("'sha256-") && !policy.contains("unsafe"));
    }
}
