// Command websocket is the WebSocket servers that millrace is compared with, and the
// client of the experiment ws-echo-ramp. Nothing of net/http's or of a library's is
// tuned.
//
//	websocket -library gws|coder|gorilla|xnet -listen 127.0.0.1:PORT [-broadcast] [-cert FILE -key FILE]
//	websocket client -address 127.0.0.1:PORT -connections N
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
)

// hub is one channel: whoever connects to it has subscribed.
type hub interface {
	http.Handler
	// Publish sends data as one message of text to all. It may keep data.
	Publish(data []byte)
}

// maxPublish is the most bytes that a publication may have.
const maxPublish = 64 << 10

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == "client" {
		err = clientMain(os.Args[2:])
	} else {
		err = serverMain(os.Args[1:])
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "websocket:", err)
		os.Exit(1)
	}
}

// serverMain serves until the listener fails; SIGTERM ends the process as it is.
func serverMain(args []string) error {
	flags := flag.NewFlagSet("websocket", flag.ExitOnError)
	library := flags.String("library", "", "gws, coder, gorilla or xnet")
	address := flags.String("listen", "127.0.0.1:0", "the TCP `address`")
	broadcast := flags.Bool("broadcast", false, "send what is posted to /publish to all, instead of echoing")
	cert := flags.String("cert", "", "serve HTTPS with this certificate (`file`)")
	key := flags.String("key", "", "and its key (`file`)")
	_ = flags.Parse(args) // it exits
	h, err := handler(*library, *broadcast)
	switch {
	case err != nil:
		return err
	case *cert != "":
		return http.ListenAndServeTLS(*address, *cert, *key, h)
	}
	return http.ListenAndServe(*address, h)
}

// errNoBroadcast is why xnet, which was published as an echo alone, has no channel.
var errNoBroadcast = errors.New("xnet has no -broadcast: the published server only echoes")

// handler is a library's server: an echo, or a channel.
func handler(library string, broadcast bool) (http.Handler, error) {
	switch {
	case library == "gws" && broadcast:
		return channel(newGWSHub()), nil
	case library == "gws":
		return gwsEcho(), nil
	case library == "coder" && broadcast:
		return channel(newCoderHub()), nil
	case library == "coder":
		return coderEcho(), nil
	case library == "gorilla" && broadcast:
		return channel(newGorillaHub()), nil
	case library == "gorilla":
		return gorillaEcho(), nil
	case library == "xnet" && broadcast:
		return nil, errNoBroadcast
	case library == "xnet":
		return xnetEcho(), nil
	}
	return nil, fmt.Errorf("-library is %q: it must be gws, coder, gorilla or xnet", library)
}

// channel takes publications at /publish, and subscribers everywhere else.
func channel(h hub) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("POST /publish", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPublish))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.Publish(data)
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}
