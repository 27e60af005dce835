// Package send sends finished answers: bytes in memory, or a shared file by sendfile(2).
// [Serve] is for an [http.Handler], such as static's; it decides conditions and ranges.
// [Socket] is for the fast lane, which has no [http.ResponseWriter].
package send

import (
	"net/http"
	"time"
)

// Answer is a finished answer to GET: everything is decided, usually except for its Date. It
// must not be changed after it was passed to Serve or to lane.Offer, which share it.
// Exactly one of Body and File is set; both are nil for an empty body.
type Answer struct {
	// Status is the final status; 0 is 200. Conditions and ranges apply to 200 alone:
	// an answer with another status is sent as it is, whatever the request says
	// (RFC 9110, 13.2.1). It must not be 206 or 304, which Serve makes of a 200,
	// nor 1xx. 204 has neither body nor Content-Length.
	Status int

	// Header has canonical keys and holds Content-Type, Content-Length,
	// Content-Encoding, ETag, Last-Modified, Vary, Cache-Control … as far as
	// they apply; never Date, Connection or Server.
	Header http.Header

	Body []byte // the body, or
	File *File  // the file that it is in, if it is too large for memory
	Base int64  // where the body begins in File, in bytes
	Size int64  // bytes of body

	ETag         string    // as in Header, quotes included; may be empty
	LastModified time.Time // as in Header, whole seconds; may be zero
}

// Code returns the answer's status.
func (a *Answer) Code() int {
	if a.Status == 0 {
		return http.StatusOK
	}
	return a.Status
}
