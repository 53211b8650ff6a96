// The search runs in a worker, and browsers refuse workers to a page that was opened as a file. There the search runs in
// a hidden frame instead, behind the few members of Worker that it uses.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.scope = this.frame.contentWindow;
      this.scope.document.write("<!doctype html><body></body>");
      this.scope.document.close();
      this.scope.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      this.loaded = new Promise((resolve, reject) => {
        const script = this.scope.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        this.scope.document.body.append(script);
      });
      this.loaded.catch((event) => this.onerror?.(event));
    }

    postMessage(data) {
      this.loaded.then(() => this.scope.dispatchEvent(new this.scope.MessageEvent("message", { data })), () => {});
    }

    terminate() {
      this.frame.remove();
    }
  };
}
