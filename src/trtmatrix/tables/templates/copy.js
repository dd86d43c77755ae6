(() => {
  "use strict";
  for (const block of document.querySelectorAll("pre.command")) {
    const code = block.querySelector("code"), button = document.createElement("button");
    const say = (words) => {
      button.textContent = words;
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    };
    const select = () => {
      window.getSelection().selectAllChildren(code);
      say("Selected");
    };
    Object.assign(button, { type: "button", className: "copy", textContent: "Copy" });
    button.setAttribute("aria-label", "Copy the command");
    button.addEventListener("click", () => {
      if (!navigator.clipboard) { select(); return; }
      navigator.clipboard.writeText(code.textContent).then(() => say("Copied"), select);
    });
    block.prepend(button);
  }
})();
