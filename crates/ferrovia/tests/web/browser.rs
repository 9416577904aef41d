//! A headless Chromium on a leash: its debugging protocol over pipes, one JSON object after the other with a NUL between.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ferrovia_lab::{Role, World};
use serde_json::{Value, json};

/// A browser needs a while to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// What distributions and Google call it. Chrome first: Ubuntu's Chromium is a snap, which sees neither this machine's files nor its namespaces
/// as other programs do. scripts/install-tools knows the same names.
const NAMES: [&str; 4] = [
    "google-chrome-stable",
    "google-chrome",
    "chromium",
    "chromium-browser",
];

/// The shell gives the browser its pipes under the numbers it wants.
const START: &str = "exec \"$2\" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars --mute-audio \
    --user-data-dir=\"$1\" --remote-debugging-pipe about:blank 3<&0 4>&1 </dev/null >/dev/null 2>\"$1/log\"";

/// One page in a browser.
pub(crate) struct Browser {
    child: Child,
    pipe: ChildStdin,
    messages: Receiver<Value>,
    next: u64,
    session: Option<String>,
    profile: PathBuf,
    /// All unsolicited messages.
    events: Vec<Value>,
}

impl Browser {
    /// Starts a browser in a node's namespace.
    pub(crate) fn start(world: &World) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let profile =
            std::env::temp_dir().join(format!("ferrovia-browser-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&profile).expect("a temporary folder can be made");
        let mut child = world
            .exec(Role::Node, "sh")
            .args(["-c", START, "sh"])
            .arg(&profile)
            .arg(program())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell can be started");
        let pipe = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                if let Ok(message) = serde_json::from_slice(&message)
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            pipe,
            messages,
            next: 0,
            session: None,
            profile,
            events: Vec::new(),
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", &attach);
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.call(&format!("{domain}.enable"), &json!({}));
        }
    }

    /// Asks for something and waits for the answer.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        let answer = self.exchange(method, parameters);
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    fn exchange(&mut self, method: &str, parameters: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut text = message.to_string().into_bytes();
        text.push(0);
        if let Err(error) = self.pipe.write_all(&text) {
            panic!("{method}: {error}\n{}", self.log());
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(answer) if answer["id"] == id => return answer,
                Ok(event) => self.events.push(event),
                Err(RecvTimeoutError::Timeout) => panic!("{method}: no answer\n{}", self.log()),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("{method}: the browser has ended\n{}", self.log())
                }
            }
        }
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// Lets the page believe that its window has this size, and that its user likes it dark or not.
    pub(crate) fn dress(&mut self, width: u32, height: u32, is_dark: bool) {
        let is_phone = width < 600;
        let scale = if is_phone { 2 } else { 1 };
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &media);
    }

    /// The value of an expression in the page.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", &evaluation(expression));
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression holds. While a page is loaded there may be nothing yet that it could hold of.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let holds = evaluation(&format!("!!({expression})"));
        let deadline = Instant::now() + PATIENCE;
        while self.exchange("Runtime.evaluate", &holds)["result"]["result"]["value"] != true {
            if Instant::now() > deadline {
                let text = self.eval("document.body.innerText");
                let text = text.as_str().unwrap_or_default();
                panic!("never: {expression}\nthe page says:\n{text}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the page shows a text.
    pub(crate) fn wait_for_text(&mut self, text: &str) {
        self.wait_for(&format!(
            "document.body.innerText.includes({})",
            json!(text)
        ));
    }

    /// Presses a key, such as `Enter` or `w`.
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "ArrowDown" => 40,
            "ArrowUp" => 38,
            "Tab" => 9,
            _ => 0,
        };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if key == "Enter" {
            down["text"] = "\r".into();
        } else if key.chars().count() == 1 {
            down["text"] = key.into();
        }
        self.call("Input.dispatchKeyEvent", &down);
        self.call(
            "Input.dispatchKeyEvent",
            &json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Writes what is seen into the folder for artefacts.
    pub(crate) fn shot(&mut self, name: &str) {
        let shot = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        let bytes = unbase64(shot["data"].as_str().expect("a picture"));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(folder.join(format!("{name}.png")), bytes).expect("it can be written");
    }

    /// The errors of the page so far, except for unanswered requests.
    pub(crate) fn errors(&self) -> Vec<String> {
        let is_error = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            Some("Log.entryAdded") => {
                let entry = &event["params"]["entry"];
                entry["level"] == "error" && entry["source"] != "network"
            }
            _ => false,
        };
        self.events
            .iter()
            .filter(is_error)
            .map(ToString::to_string)
            .collect()
    }

    /// Everything the page asked for.
    pub(crate) fn requests(&self) -> Vec<String> {
        let sent = self
            .events
            .iter()
            .filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| {
            event["params"]["request"]["url"]
                .as_str()
                .map(str::to_owned)
        })
        .collect()
    }

    fn log(&self) -> String {
        let mut text = String::new();
        if let Ok(mut file) = std::fs::File::open(self.profile.join("log")) {
            let _ = file.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Browser {
    /// Asked to, it ends with all its processes; killed, it would leave some behind for a moment, which go on writing.
    fn drop(&mut self) {
        let _ = self
            .pipe
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let deadline = Instant::now() + Duration::from_secs(60);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        while std::fs::remove_dir_all(&self.profile).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The first of the names that is on the search path.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    NAMES
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|candidate| candidate.exists())
        .unwrap_or_else(|| {
            panic!("one of {NAMES:?} is needed; `scripts/install-tools test` installs it")
        })
}

fn evaluation(expression: &str) -> Value {
    json!({ "expression": expression, "returnByValue": true, "awaitPromise": true })
}

fn unbase64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| *byte != b'=')
        .map(digit)
        .collect();
    let mut bytes = Vec::with_capacity(digits.len());
    for chunk in digits.chunks(4) {
        let number = chunk
            .iter()
            .fold(0_u32, |number, digit| number << 6 | u32::from(*digit));
        let number = number << (6 * (4 - chunk.len()));
        let three = [(number >> 16) as u8, (number >> 8) as u8, number as u8];
        bytes.extend(&three[..chunk.len() - 1]);
    }
    bytes
}
