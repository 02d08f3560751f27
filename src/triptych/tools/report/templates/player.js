"use strict";
/* Player of pieces: notes are scheduled AHEAD seconds before they sound; the clock is that of the audio. */
const AHEAD = 0.4;
const EVERY = 100; // milliseconds between two looks for notes to schedule
let audio = null;
let output = null;
let noise = null;
let playing = null; // {player state} of the piece that sounds

function openAudio() {
  if (audio) return;
  const context = new AudioContext();
  output = context.createDynamicsCompressor();
  output.connect(context.destination);
  noise = context.createBuffer(1, context.sampleRate / 4, context.sampleRate);
  const samples = noise.getChannelData(0);
  let seed = 1; // the same noise each time
  for (let i = 0; i < samples.length; i++) {
    seed = (seed * 16807) % 2147483647;
    samples[i] = (2 * seed / 2147483647 - 1) * (1 - i / samples.length);
  }
  audio = context;
}

/* Start a note at a time of the audio, `from` seconds after its beginning; return its source. */
function sound(note, at, from) {
  const gain = audio.createGain();
  const end = at + note.duration - from;
  let source;
  if (note.drum) {
    source = audio.createBufferSource();
    source.buffer = noise;
    const band = audio.createBiquadFilter();
    band.type = "bandpass";
    band.frequency.value = note.pitch < 40 ? 120 : 80 * (note.pitch - 34);
    source.connect(band).connect(gain);
  } else {
    source = audio.createOscillator();
    source.type = "triangle";
    source.frequency.value = 440 * 2 ** ((note.pitch - 69) / 12);
    source.connect(gain);
  }
  const level = 0.25 * (note.velocity / 127) ** 1.5 + 0.01;
  const stop = note.drum ? at + 0.25 : end + 0.08;
  gain.gain.setValueAtTime(0, at);
  gain.gain.linearRampToValueAtTime(level, at + 0.01);
  gain.gain.setTargetAtTime(level * 0.4, at + 0.01, 0.4);
  gain.gain.setTargetAtTime(0, Math.max(end, at + 0.02), 0.02);
  gain.connect(output);
  source.start(at);
  source.stop(Math.max(stop, at + 0.1));
  return source;
}

function here() {
  return Math.min(playing.from + Math.max(audio.currentTime - playing.began, 0), playing.seconds);
}

function schedule() {
  const until = here() + AHEAD;
  while (playing.next < playing.notes.length && playing.notes[playing.next].start < until) {
    const note = playing.notes[playing.next++];
    const skipped = Math.max(playing.from - note.start, 0);
    if (skipped >= note.duration && skipped > 0) continue;
    const source = sound(note, playing.began + Math.max(note.start - playing.from, 0), skipped);
    const sources = playing.sources;
    sources.add(source);
    source.addEventListener("ended", () => sources.delete(source));
  }
}

function draw(figure, seconds) {
  const { line, position, clock, scroll, left, scale } = figure.parts;
  const x = left + seconds * scale;
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  position.value = seconds;
  const total = Number(figure.dataset.seconds).toFixed(1);
  clock.textContent = `${seconds.toFixed(1)} of ${total} s`;
  position.setAttribute("aria-valuetext", `${seconds.toFixed(1)} of ${total} seconds`);
  if (x < scroll.scrollLeft || x > scroll.scrollLeft + 0.9 * scroll.clientWidth) {
    scroll.scrollLeft = x - 0.1 * scroll.clientWidth;
  }
}

function frame() {
  if (!playing) return;
  const seconds = here();
  draw(playing.figure, seconds);
  if (seconds >= playing.seconds) {
    const figure = playing.figure;
    pause();
    draw(figure, 0);
    return;
  }
  requestAnimationFrame(frame);
}

function pause() {
  if (!playing) return;
  clearInterval(playing.timer);
  for (const source of playing.sources) source.stop();
  playing.figure.parts.verb.textContent = "Play";
  playing = null;
}

async function play(figure) {
  pause();
  try {
    openAudio();
    await audio.resume();
  } catch (error) {
    figure.querySelector(".said").textContent = `This browser cannot play sound (${error.message}).`;
    return;
  }
  const seconds = Number(figure.dataset.seconds);
  const from = Number(figure.parts.position.value);
  playing = {
    figure, seconds, notes: figure.notes, sources: new Set(), next: 0,
    from: from >= seconds ? 0 : from, began: audio.currentTime + 0.05, timer: 0,
  };
  figure.parts.verb.textContent = "Pause";
  schedule();
  playing.timer = setInterval(schedule, EVERY);
  requestAnimationFrame(frame);
}

/* Make the controls of a <figure class="piece"> work. */
function attachPiece(figure) {
  const find = (name) => figure.querySelector(name);
  find(".controls").hidden = false;
  const line = find(".cursor");
  figure.parts = {
    line, verb: find(".verb"), position: find(".position"), clock: find(".clock"),
    scroll: find(".scroll"), left: Number(line.getAttribute("x1")), scale: Number(line.ownerSVGElement.dataset.scale),
  };
  figure.notes = [...figure.querySelectorAll("[data-sound]")].map((bar) => {
    const [start, duration, pitch, velocity, drum] = bar.dataset.sound.split(" ").map(Number);
    return { start, duration, pitch, velocity, drum };
  }).sort((a, b) => a.start - b.start);
  find(".play").addEventListener("click", () => {
    if (playing && playing.figure === figure) pause();
    else play(figure);
  });
  figure.parts.position.addEventListener("input", () => {
    const seconds = Number(figure.parts.position.value);
    const sounding = playing && playing.figure === figure;
    if (sounding) pause();
    draw(figure, seconds);
    if (sounding) play(figure);
  });
}
