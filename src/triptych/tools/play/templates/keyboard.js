/* Keyboard and step grid: each key writes a note at the cursor; a click on the grid does too. */
const MAX_STEPS = 256;
const BAR = 16;
const [CELL, LINE] = [12, 9]; // pixels of a sixteenth and of a semitone
const OCTAVES = 2;
const COMPUTER_KEYS = "awsedftgyhujkolp;";
const BLACK = [1, 3, 6, 8, 10];
const NAMES = ["C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B"];
const ODE_TO_JOY = [
  [71, 4], [71, 4], [72, 4], [74, 4], [74, 4], [72, 4], [71, 4], [69, 4],
  [67, 4], [67, 4], [69, 4], [71, 4], [71, 6], [69, 2], [69, 8],
];

function attachKeyboard(box) {
  const find = (name) => box.querySelector(name);
  const svg = find(".steps");
  let notes = []; // {start, length, pitch}, lengths in sixteenths, one note at a time
  let cursor = 0; // sixteenth at which the next note begins
  let lowest = 60;
  const before = []; // states to return to
  let melody = null; // what sounds: {sources, timer}
  const tempo = () => Number(find(".tempo").value); // quarters per minute
  const stepSeconds = () => 15 / (tempo() || 75); // of a sixteenth; no tempo is there while one is typed
  box.melody = () => ({
    tempo: tempo(), notes: notes.map(({ start, length, pitch }) => [start, length, pitch]),
  });

  const say = (text) => { find(".said").textContent = text; };
  const length = () => Number(find(".length:checked").value);
  const remember = () => before.push([notes, cursor]);
  const element = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return svg.appendChild(made);
  };

  function show() {
    const end = Math.max(cursor, ...notes.map((note) => note.start + note.length));
    const columns = Math.min(Math.max(4 * BAR, (Math.floor(end / BAR) + 1) * BAR), MAX_STEPS);
    const rows = 12 * OCTAVES;
    svg.replaceChildren();
    svg.setAttribute("width", columns * CELL);
    svg.setAttribute("height", rows * LINE);
    const y = (pitch) => (lowest + rows - 1 - pitch) * LINE;
    for (let pitch = lowest; pitch < lowest + rows; pitch++) {
      if (!BLACK.includes(pitch % 12)) continue;
      element("rect", { class: "row", x: 0, y: y(pitch), width: columns * CELL, height: LINE });
    }
    for (let step = 0; step <= columns; step += 4) {
      const kind = step % BAR ? "beat" : "bar";
      element("line", { class: kind, x1: step * CELL, x2: step * CELL, y1: 0, y2: rows * LINE });
    }
    for (const { start, length, pitch } of notes) {
      element("rect", {
        class: "voice colour-0", x: start * CELL + 1, y: y(pitch) + 1,
        width: length * CELL - 2, height: LINE - 2, rx: 2,
      });
    }
    element("line", { class: "cursor", x1: cursor * CELL, x2: cursor * CELL, y1: 0, y2: rows * LINE });
    const hidden = notes.filter((note) => note.pitch < lowest || note.pitch >= lowest + rows);
    find(".count").textContent = notes.length === 1 ? "1 note" : `${notes.length} notes`
      + (hidden.length ? `, ${hidden.length} of them above or below` : "");
    find(".octave").textContent = `C${lowest / 12 - 1} to B${lowest / 12 + OCTAVES - 2}`;
    for (const key of box.querySelectorAll(".tone")) key.dataset.pitch = lowest + Number(key.dataset.number);
    for (const key of box.querySelectorAll(".tone")) {
      const pitch = Number(key.dataset.pitch);
      key.setAttribute("aria-label", `${NAMES[pitch % 12]}${Math.floor(pitch / 12) - 1}`);
    }
  }

  /* Write a note, or a rest for pitch null, over whatever sounds at its time. */
  function write(start, pitch) {
    const end = start + length();
    if (end > MAX_STEPS) {
      say(`A melody has at most ${MAX_STEPS / BAR} bars.`);
      return;
    }
    remember();
    notes = notes.flatMap((note) => {
      if (note.start >= end || note.start + note.length <= start) return [note];
      return note.start < start ? [{ ...note, length: start - note.start }] : [];
    });
    if (pitch !== null) notes.push({ start, length: end - start, pitch });
    notes.sort((a, b) => a.start - b.start);
    cursor = end;
    say("");
    show();
    const scroll = svg.parentElement;
    if (cursor * CELL > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = start * CELL;
  }

  async function press(pitch) {
    write(cursor, pitch);
    const key = find(`.tone[data-pitch="${pitch}"]`);
    if (key) {
      key.classList.add("down");
      setTimeout(() => key.classList.remove("down"), 200);
    }
    await hear([{ start: 0, length: Math.min(length(), 4), pitch }]);
  }

  /* Sound notes; returns their sources. */
  async function hear(some) {
    openAudio();
    await audio.resume();
    const step = stepSeconds();
    return some.map(({ start, length, pitch }) => sound(
      { pitch, duration: length * step, velocity: 90, drum: 0 },
      audio.currentTime + 0.02 + start * step, 0,
    ));
  }

  function stop() {
    if (!melody) return;
    clearInterval(melody.timer);
    for (const source of melody.sources) source.stop();
    melody = null;
    find(".listen").textContent = "Listen";
    show();
  }

  async function listen() {
    if (melody) return stop();
    const [sources, seconds] = [await hear(notes), stepSeconds()];
    const began = audio.currentTime + 0.02;
    const last = Math.max(0, ...notes.map((note) => note.start + note.length));
    find(".listen").textContent = "Stop";
    const timer = setInterval(() => {
      const step = (audio.currentTime - began) / seconds;
      if (step >= last) return stop();
      const line = svg.querySelector(".cursor");
      line.setAttribute("x1", step * CELL);
      line.setAttribute("x2", step * CELL);
    }, 40);
    melody = { sources, timer };
  }

  const actions = {
    listen,
    rest: () => write(cursor, null),
    undo: () => { if (before.length) [notes, cursor] = before.pop(); show(); },
    clear: () => { remember(); notes = []; cursor = 0; show(); },
    lower: () => { lowest = Math.max(36, lowest - 12); show(); },
    higher: () => { lowest = Math.min(72, lowest + 12); show(); },
    example: () => {
      remember();
      [notes, cursor] = [[], 0];
      for (const [pitch, length] of ODE_TO_JOY) {
        notes.push({ start: cursor, length, pitch });
        cursor += length;
      }
      show();
    },
  };
  for (const [name, action] of Object.entries(actions)) {
    find(`.${name}`).addEventListener("click", () => {
      if (name !== "listen") stop();
      action();
    });
  }
  for (const key of box.querySelectorAll(".tone")) {
    key.addEventListener("click", () => press(Number(key.dataset.pitch)));
  }
  svg.addEventListener("click", (event) => {
    const place = svg.getBoundingClientRect();
    const step = Math.floor((event.clientX - place.left) / CELL);
    const pitch = lowest + 12 * OCTAVES - 1 - Math.floor((event.clientY - place.top) / LINE);
    const there = notes.find((note) =>
      note.pitch === pitch && note.start <= step && step < note.start + note.length);
    if (!there) {
      write(step, pitch);
      hear([{ start: 0, length: 1, pitch }]);
      return;
    }
    remember();
    notes = notes.filter((note) => note !== there);
    cursor = there.start;
    show();
  });
  /* Keys of the computer count unless a field has the focus or the tab is hidden. */
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not(.length), textarea, select, [contenteditable]");
    if (typing || !box.offsetParent || event.ctrlKey || event.metaKey || event.altKey) return;
    const number = COMPUTER_KEYS.indexOf(event.key.toLowerCase());
    if (number >= 0 && !event.repeat) press(lowest + number);
    else if (event.key === "Backspace") actions.undo();
    else return;
    event.preventDefault();
  });
  show();
}

/* The melody of a keyboard as JSON: quarters per minute, and notes [start, length, pitch] in sixteenths. */
function melodyOf(id) {
  return JSON.stringify(document.querySelector(`#${id}`).melody());
}
