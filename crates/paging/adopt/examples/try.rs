use std::ffi::CString;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let settings: Vec<CString> = std::env::vars().filter(|(n, _)| n.starts_with("TERAPAGE_")).map(|(n, v)| CString::new(format!("{n}={v}")).unwrap()).collect();
    let fault = std::env::var("FAULT").ok().and_then(|f| f.parse().ok());
    let t = std::time::Instant::now();
    match terapage_adopt::adopt(&terapage_adopt::Wish { pid: a[2].parse().unwrap(), host: a[1].as_ref(), settings: &settings, fault }) {
        Err(why) => { println!("not adopted: {why}"); std::process::exit(125) }
        Ok(d) => { println!("held after {:?}, pause {:?}", t.elapsed(), d.pause);
            let mut last = None;
            while let Some(p) = d.progress() { if last != Some(p) { println!("{:?} {p:?}", t.elapsed()); last = Some(p); } if p.is_done { return } std::thread::sleep(std::time::Duration::from_millis(5)); } println!("ended"); }
    }
}
