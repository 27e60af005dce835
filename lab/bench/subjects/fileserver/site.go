package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
)

// verifyPath is the JSON method's.
const verifyPath = "/stopdiiacity/verify.json"

// verification is the JSON method's answer. Every arm that has code encodes it
// for each request, as a method does whose answer may be another one next time.
type verification struct {
	Verified bool   `json:"verified"`
	Note     string `json:"note"`
}

// readVerification takes the answer from the file that servers without methods
// send in its place.
func readVerification(fsys fs.FS) (*verification, error) {
	b, err := fs.ReadFile(fsys, verifyPath[1:])
	if err != nil {
		return nil, fmt.Errorf("reading the JSON method's answer: %w", err)
	}
	return parseVerification(b)
}

// parseVerification is readVerification for bytes.
func parseVerification(b []byte) (*verification, error) {
	v := new(verification)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("reading the JSON method's answer: %w", err)
	}
	return v, nil
}

// JSON encodes it.
func (v *verification) JSON() ([]byte, error) { return json.Marshal(v) }

// withMethod routes the JSON method to v and everything else to files.
func withMethod(files http.Handler, v *verification) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", files)
	mux.HandleFunc(verifyPath, func(w http.ResponseWriter, _ *http.Request) {
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
