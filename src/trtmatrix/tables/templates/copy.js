(function () {
  "use strict";
  document.querySelectorAll("pre.command").forEach(function (block) {
    var button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the command");
    button.addEventListener("click", function () {
      var words = block.querySelector("code").textContent;
      function done(said) {
        button.textContent = said;
        setTimeout(function () { button.textContent = "Copy"; }, 2000);
      }
      function mark() {
        var range = document.createRange();
        range.selectNodeContents(block.querySelector("code"));
        var chosen = window.getSelection();
        chosen.removeAllRanges();
        chosen.addRange(range);
        done("Selected");
      }
      if (!navigator.clipboard) { mark(); return; }
      navigator.clipboard.writeText(words).then(function () { done("Copied"); }, mark);
    });
    block.insertBefore(button, block.firstChild);
  });
})();
