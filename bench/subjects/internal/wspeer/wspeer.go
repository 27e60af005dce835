// Package wspeer is what the WebSocket servers that millrace is compared with
// have in common: flags, serving, and publishing over HTTP. Nothing of
// net/http's is tuned.
package wspeer

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
)

// Hub is one channel: whoever connects to it has subscribed.
type Hub interface {
	http.Handler
	// Publish sends data as one message of text to all. It may keep data.
	Publish(data []byte)
}

// maxPublish is the most bytes that a publication may have.
const maxPublish = 64 << 10

// Main parses the flags of a command and serves until the listener fails; SIGTERM
// ends the process as it is. It returns the exit code.
//
//	-listen ADDRESS [-broadcast] [-cert FILE -key FILE]
func Main(name string, echo http.Handler, hub Hub) int {
	address := flag.String("listen", "127.0.0.1:0", "the TCP `address`")
	broadcast := flag.Bool("broadcast", false, "send what is posted to /publish to all, instead of echoing")
	cert := flag.String("cert", "", "serve HTTPS with this certificate (`file`)")
	key := flag.String("key", "", "and its key (`file`)")
	flag.Parse()
	h := echo
	if *broadcast {
		h = Route(hub)
	}
	var err error
	if *cert != "" {
		err = http.ListenAndServeTLS(*address, *cert, *key, h)
	} else {
		err = http.ListenAndServe(*address, h)
	}
	_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return 1
}

// Route takes publications at /publish, and subscribers everywhere else.
func Route(hub Hub) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", hub)
	mux.HandleFunc("POST /publish", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPublish))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		hub.Publish(data)
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}
