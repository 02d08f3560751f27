/* Canvas in the size of the model's images; the part that the model samples is covered. */
const MAX_PICTURE = 5e6; // bytes of a picture file

function attachDrawing(box) {
  const canvas = box.querySelector("canvas");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const said = box.querySelector(".said");
  const ink = box.querySelector(".ink");
  const erase = box.querySelector(".erase");
  const file = box.querySelector(".file");
  const at = (event) => {
    const place = canvas.getBoundingClientRect();
    return [
      ((event.clientX - place.left) / place.width) * canvas.width,
      ((event.clientY - place.top) / place.height) * canvas.height,
    ];
  };
  let last = null; // end of the stroke that is being drawn
  const stroke = (event) => {
    const here = at(event);
    context.strokeStyle = erase.getAttribute("aria-pressed") === "true" ? "#000000" : ink.value;
    context.lineWidth = canvas.width / 12;
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...here);
    context.stroke();
    last = here;
  };
  fill(canvas, "#000000");
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = at(event);
    stroke(event);
  });
  canvas.addEventListener("pointermove", (event) => { if (last) stroke(event); });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => { last = null; });
  }
  erase.addEventListener("click", () => {
    erase.setAttribute("aria-pressed", String(erase.getAttribute("aria-pressed") !== "true"));
  });
  box.querySelector(".fill").addEventListener("click", () => fill(canvas, ink.value));
  box.querySelector(".clear").addEventListener("click", () => fill(canvas, "#000000"));
  box.querySelector(".choose").addEventListener("click", () => file.click());
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    file.value = ""; // so that the same file can be chosen again
    said.textContent = "";
    if (!chosen) return;
    if (chosen.size > MAX_PICTURE) {
      said.textContent = `${chosen.name} has ${(chosen.size / 1e6).toFixed(1)} MB; expected at most ${MAX_PICTURE / 1e6} MB.`;
      return;
    }
    try {
      cover(canvas, await createImageBitmap(chosen));
    } catch {
      said.textContent = `${chosen.name} is no picture that this browser can read.`;
    }
  });
}

function fill(canvas, colour) {
  const context = canvas.getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, canvas.width, canvas.height);
}

/* Draw the middle of a picture over the whole canvas; transparency over white, as in training. */
function cover(canvas, picture) {
  fill(canvas, "#ffffff");
  const scale = Math.max(canvas.width / picture.width, canvas.height / picture.height);
  const [width, height] = [picture.width * scale, picture.height * scale];
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(
    picture, (canvas.width - width) / 2, (canvas.height - height) / 2, width, height,
  );
}

function drawingOf(id) {
  return document.querySelector(`#${id} canvas`).toDataURL("image/png");
}

/* Show a picture unless its address is empty; return an empty one, so that it is shown once. */
async function showDrawing(id, address) {
  if (!address) return "";
  const picture = new Image();
  picture.src = address;
  await picture.decode();
  cover(document.querySelector(`#${id} canvas`), picture);
  return "";
}

function hidePart(id, part) {
  document.querySelector(`#${id} .cover`).dataset.part = part;
  return part;
}
