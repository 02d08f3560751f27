for (const element of document.querySelectorAll(".js")) element.hidden = false;

/* Samples: one validation at a time, chosen by a slider. */
for (const group of document.querySelectorAll(".validations")) {
  const chooser = group.querySelector(".chooser");
  if (!chooser) continue;
  const shown = [...group.querySelectorAll(".validation")];
  const show = () => {
    const index = Number(chooser.value);
    const name = `step ${Number(shown[index].dataset.step).toLocaleString("en")}`;
    shown.forEach((one, number) => { one.hidden = number !== index; });
    group.querySelector(".chosen").textContent = `${name} (${index + 1} of ${shown.length})`;
    chooser.setAttribute("aria-valuetext", name);
    if (playing && playing.figure.closest("[hidden]")) pause();
  };
  chooser.addEventListener("input", show);
  queueMicrotask(show);
}

/* Images: a dialog that enlarges them. */
const viewer = document.getElementById("viewer");
const enlarged = document.getElementById("enlarged");
const zoom = document.getElementById("zoom");
const resize = () => {
  enlarged.style.width = `${100 * zoom.value}%`;
  zoom.setAttribute("aria-valuetext", `${zoom.value} times the width of the window`);
};
for (const button of document.querySelectorAll(".picture")) {
  button.addEventListener("click", () => {
    const image = button.querySelector("img");
    enlarged.src = image.src;
    enlarged.alt = image.alt;
    enlarged.className = image.className;
    zoom.value = 1;
    resize();
    viewer.showModal();
  });
}
zoom.addEventListener("input", resize);
document.getElementById("close").addEventListener("click", () => viewer.close());

for (const figure of document.querySelectorAll(".piece")) attachPiece(figure);
