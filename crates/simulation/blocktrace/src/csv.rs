//! Lines of CSV: separators, fields, and how a user names a column.

use std::borrow::Cow;
use std::str::FromStr;

/// A column, by its name or its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// From 1.
    Number(usize),
    /// Its name in the first line.
    Name(String),
}

impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Column, String> {
        let text = text.trim();
        match text.parse::<usize>() {
            Ok(0) => Err(format!("'{text}': columns are counted from 1")),
            Ok(number) => Ok(Column::Number(number)),
            Err(_) if text.is_empty() => Err("a column has a name or a number".to_owned()),
            Err(_) => Ok(Column::Name(text.to_owned())),
        }
    }
}

/// The separator of the fields of a line: the first of these that occurs.
pub fn separator_of(line: &[u8]) -> u8 {
    *b",\t;| ".iter().find(|separator| line.contains(separator)).unwrap_or(&b',')
}

/// The fields of a line; a field in quotation marks may contain the separator, and quotation marks
/// written twice.
pub fn fields(line: &[u8], separator: u8) -> Vec<Cow<'_, [u8]>> {
    let spaces = separator == b' ';
    if !line.contains(&b'"') {
        let fields = line.split(|byte| *byte == separator).filter(|field| !spaces || !field.is_empty());
        return fields.map(|field| Cow::Borrowed(field.trim_ascii())).collect();
    }
    let (mut fields, mut field, mut quoted) = (Vec::<Cow<[u8]>>::new(), Vec::new(), false);
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                field.push(b'"');
            }
            b'"' => quoted = !quoted,
            byte if byte == separator && !quoted => fields.push(Cow::Owned(std::mem::take(&mut field))),
            byte => field.push(byte),
        }
    }
    fields.push(Cow::Owned(field));
    fields.retain(|field| !spaces || !field.is_empty());
    fields
}
