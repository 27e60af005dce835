// Package listen is what the subjects on net/http have in common: flags, the
// JSON method's route, and serving. Nothing of net/http's is tuned.
package listen

import (
	"flag"
	"fmt"
	"net/http"
	"os"

	"millrace/bench/subjects/internal/site"
)

// HTTP parses the flags, makes the handler and serves until the listener
// fails; SIGTERM ends the process as it is. It returns the exit code.
func HTTP(name string, newHandler func(root string) (http.Handler, error)) int {
	root := flag.String("root", ".", "the `folder` to serve, where it is not in the executable")
	address := flag.String("listen", "127.0.0.1:8080", "the TCP `address`")
	flag.Parse()
	h, err := newHandler(*root)
	if err == nil {
		err = http.ListenAndServe(*address, h)
	}
	_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return 1
}

// Site routes the JSON method to v and everything else to files.
func Site(files http.Handler, v *site.Verification) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", files)
	mux.HandleFunc(site.VerifyPath, func(w http.ResponseWriter, _ *http.Request) {
		b, err := v.JSON()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(b)
	})
	return mux
}
