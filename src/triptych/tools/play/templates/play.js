/* Attach the scripts of this page to elements as soon as gradio puts them into it. gradio turns the
   elements of one result into those of the next one in place, which removes data-attached: an element
   without it is replaced by a copy, which has no listeners of an earlier result. */
const ATTACH = { drawing: attachDrawing, keyboard: attachKeyboard, piece: attachPiece };

function attachAll() {
  for (const [name, attach] of Object.entries(ATTACH)) {
    for (const element of document.querySelectorAll(`.triptych.${name}, .triptych .${name}`)) {
      if (element.dataset.attached) continue;
      const copy = element.cloneNode(true);
      copy.dataset.attached = "true";
      element.replaceWith(copy);
      attach(copy);
    }
  }
  if (playing && !playing.figure.isConnected) pause();
}

new MutationObserver(attachAll).observe(document, {
  childList: true, subtree: true, attributeFilter: ["data-attached"],
});
attachAll();
