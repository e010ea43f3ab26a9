//! `terapage paper run stack`: Linux's I/O stack, simulated.

mod calibrate;
mod free;
pub mod options;

pub use calibrate::Calibrate;
pub use free::{Figures, Run};

use terapage_report::{Ends, Whisker};
use terapage_stack::Spread;

/// The values of several seeds as a whisker; `None` for one seed.
pub fn whisker(spread: &Spread) -> Option<Whisker> {
    Some(Whisker::around(spread.mean, spread.margin?, Ends::Interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use terapage_report::{Origin, Study};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: Run,
    }

    fn study(line: &str) -> anyhow::Result<Study> {
        Ok(simulated(line)?.0)
    }

    fn simulated(line: &str) -> anyhow::Result<(Study, Vec<Figures>)> {
        Line::try_parse_from(std::iter::once("stack").chain(line.split(' ')))?.run.simulated()
    }

    #[test]
    fn the_figures_of_each_seed_are_numbers() {
        let (study, figures) = simulated("--stack nvme --rate 200k --time 1 --seeds 2 --seed 5").unwrap();
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!((json[0]["seed"].as_u64(), json[1]["seed"].as_u64()), (Some(5), Some(6)));
        let mean = (json[0]["iops"].as_f64().unwrap() + json[1]["iops"].as_f64().unwrap()) / 2e3;
        assert!(study.tables[0].rows[0][1].starts_with(&format!("{mean:.2}")), "{mean}");
        assert!(json[0]["busy_us"]["kernel work"].as_f64().unwrap() > 0.0);
    }

    #[test]
    fn a_study_is_whole() {
        let study = study("--stack mq-nvme --rate 200k --time 1 --seeds 1").unwrap();
        assert!(!study.title.is_empty() && !study.summary.is_empty() && !study.parameters.is_empty());
        assert!(study.command.starts_with("terapage paper run stack --stack mq-nvme"), "{}", study.command);
    }

    #[test]
    fn the_same_command_gives_the_same_study() {
        let line = "--stack scsi --rate 600k --time 2";
        let json = |line: &str| serde_json::to_string(&study(line).unwrap()).unwrap();
        assert_eq!(json(line), json(line));
        assert_ne!(json(line), json(&format!("{line} --seed 9")));
    }

    #[test]
    fn a_study_tells_how_it_is_made_again() {
        let line = "--stack scsi --rate 100k --set cores=4 --set spread=yes --time 1 --seeds 1";
        let one = study(line).unwrap();
        let again = study(one.command.strip_prefix("terapage paper run stack ").unwrap()).unwrap();
        assert_eq!(again, one);
    }

    #[test]
    fn what_the_user_chose_is_in_the_study() {
        let study = study("--stack scsi --set cores=4 --rate 100k --cost aio-dio=3000 --time 1").unwrap();
        let value = |name: &str| {
            let mut named = study.parameters.iter().filter(|parameter| parameter.name == name);
            named.next().map(|parameter| (parameter.value.clone(), parameter.origin))
        };
        assert_eq!(value("haswell cores"), Some(("4".into(), Origin::Chosen)));
        assert_eq!(value("aio-dio"), Some(("3000".into(), Origin::Chosen)));
        assert_eq!(value("haswell smt"), Some(("2".into(), Origin::Published)));
    }

    #[test]
    fn options_without_effect_are_named() {
        let said = |line: &str| {
            let study = study(&format!("{line} --time 1 --seeds 1")).unwrap();
            let named = |line: &String| line.starts_with("Without effect here: ");
            study.summary.into_iter().find(named).unwrap_or_default()
        };
        assert_eq!(
            said("--stack scsi --rate 100k --set cores=4 --set sequential=0.5 --set multiplicity=4"),
            ""
        );
        let told = said("--stack scsi --rate 100k --set hw-queues=3 --set threads=4 --set sequential=0.5");
        assert!(told.starts_with("Without effect here: --set hw-queues, --set sequential ("), "{told}");
        let told = said("--stack mq-nvme --without queue-lock --cost deadline-insert=9 --set poisson=yes");
        let wanted = "Without effect here: --set poisson, --without queue-lock, --cost deadline-insert (";
        assert!(told.starts_with(wanted), "{told}");
    }

    #[test]
    fn threads_that_are_the_bottleneck_are_named() {
        let said = |line: &str| study(&format!("{line} --time 2 --seeds 1")).unwrap().summary.join(" ");
        assert!(!said("--stack nvme --set threads=1 --set calls=8").contains("bottleneck"));
        let told = said("--stack nvme --set threads=1 --set calls=96");
        assert!(told.contains("96 calls may be under way, and "), "{told}");
    }

    #[test]
    fn a_rate_that_is_missed_is_said() {
        let line = "--stack scsi --rate 1.2M --set cores=1 --set threads=1 --time 1 --seeds 1";
        let said = study(line).unwrap().summary.join(" ");
        assert!(said.contains("1200000 IOPS were asked for, and "), "{said}");
    }

    #[test]
    fn given_costs_override_those_of_a_machine() {
        let file = |text: &str, name: &str| {
            let path = std::env::temp_dir().join(format!("terapage-{}-{name}.toml", std::process::id()));
            std::fs::write(&path, text).unwrap();
            path
        };
        let sourced =
            |value: u32| format!("{{ value = {value}, unit = '', origin = 'measured', source = 'a test' }}");
        let values = terapage_stack::machine_values("polled").unwrap();
        let machine: String = values
            .iter()
            .map(|(name, known)| format!("{name} = {}\n", sourced(known.value as u32)))
            .collect();
        let machine = machine + "drains = " + &sourced(0) + "\n";
        let machine = machine.replace("smt-speed = { value = 0", "smt-speed = { value = 1");
        let machine = file(&format!("[machine]\n{machine}\n[costs]\nsyscall = {}", sourced(111)), "machine");
        let line = format!(
            "--stack virtio --machine {} --cost syscall=222 --set threads=1 --time 1 --seeds 1",
            machine.display()
        );
        let study = study(&line);
        let _ = std::fs::remove_file(&machine);
        let parameters = study.unwrap().parameters;
        let syscall = parameters.iter().find(|parameter| parameter.name == "syscall").unwrap();
        assert_eq!(syscall.value, "222");
    }

    #[test]
    fn bad_input_is_named() {
        let refused = |line: &str| study(line).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused("--stack scsy").contains("unknown stack 'scsy'; known are scsi, nvme"));
        let cores = refused("--stack scsi --set cores=0");
        assert!(cores.contains("cores is 0; it must lie between 1 and 1024"), "{cores}");
        assert!(refused("--stack scsi --set core=4").contains("there is no parameter core"));
        assert!(refused("--stack scsi --rate 1e30").contains("rate (IOPS)"));
        assert!(refused("--stack scsi --machine cray").contains("unknown machine 'cray'"));
        assert!(refused("--stack uring --set threads=30").contains("30 threads that poll"));
    }
}
