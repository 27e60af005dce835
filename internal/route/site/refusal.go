package site

import "net/http"

// Refusal is the text with which a request is refused, whoever does so.
func Refusal(status int) string {
	if status == http.StatusRequestEntityTooLarge {
		return "The request's body is larger than this server accepts."
	}
	return http.StatusText(status)
}
