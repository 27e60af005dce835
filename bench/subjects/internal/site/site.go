// Package site is what the subjects of embed-vs-disk serve, but for the files
// themselves: the one JSON method.
package site

import (
	"encoding/json"
	"fmt"
	"io/fs"
)

// VerifyPath is the JSON method's.
const VerifyPath = "/stopdiiacity/verify.json"

// Verification is the JSON method's answer. Every arm that has code encodes it
// for each request, as a method does whose answer may be another one next time.
type Verification struct {
	Verified bool   `json:"verified"`
	Note     string `json:"note"`
}

// ReadVerification takes the answer from the file that servers without methods
// send in its place.
func ReadVerification(fsys fs.FS) (*Verification, error) {
	b, err := fs.ReadFile(fsys, VerifyPath[1:])
	if err != nil {
		return nil, fmt.Errorf("reading the JSON method's answer: %w", err)
	}
	return ParseVerification(b)
}

// ParseVerification is ReadVerification for bytes.
func ParseVerification(b []byte) (*Verification, error) {
	v := new(Verification)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("reading the JSON method's answer: %w", err)
	}
	return v, nil
}

// JSON encodes it.
func (v *Verification) JSON() ([]byte, error) { return json.Marshal(v) }
