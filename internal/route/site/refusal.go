package site

import "net/http"

// Refusal is the text of an answer that refuses a request, by the server or a job.
func Refusal(status int) string {
	if status == http.StatusRequestEntityTooLarge {
		return "The request's body is larger than this server accepts."
	}
	return http.StatusText(status)
}
