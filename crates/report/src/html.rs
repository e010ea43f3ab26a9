//! A study as one HTML page that needs nothing else.

use crate::study::Study;
use crate::text::render_text;
use maud::{DOCTYPE, html};

/// The study as one self-contained HTML page.
pub fn render_html(study: &Study) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { (study.title) } }
            body { pre { (render_text(study, 100)) } }
        }
    };
    page.into_string()
}
