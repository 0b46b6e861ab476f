// Browsers start no worker from the disk. There, the script of the search runs
// in a hidden frame instead. Material for MkDocs would load such a stand-in
// from elsewhere if there were no file of this name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) =>
          this.dispatchEvent(new MessageEvent("message", {data}));
      const script = this.scope.document.createElement("script");
      script.src = address;
      this.loaded = new Promise((resolve) => script.onload = resolve);
      this.scope.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.scope.dispatchEvent(
          new this.scope.MessageEvent("message", {data})));
    }
  };
}
