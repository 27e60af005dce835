package slow

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// Prefix is where Handler belongs on the admin listener.
const Prefix = "/slow/"

// Handler answers with what a store has, as JSON.
//
//	GET /slow/          a List
//	GET /slow/N/trace   what the runtime's recorder has of the request N, for "go tool trace"
func (s *Store) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Prefix+"{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.List()) // the client may have gone
	})
	mux.HandleFunc("GET "+Prefix+"{number}/trace", func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.ParseUint(r.PathValue("number"), 10, 64)
		if err != nil {
			http.Error(w, "This is not a number.", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		if found, _ := s.Trace(number, w); !found { // or the client has gone
			http.Error(w, fmt.Sprintf("The recorder has nothing of request %d.", number), http.StatusNotFound)
		}
	})
	return mux
}
