package server

import (
	"bufio"
	"io"
	"net/http/httputil"
	"strconv"
	"strings"
)

// unframed is what answers say but for how their bodies are framed, which hangs on
// whether the end had come by the time the header was sent.
func unframed(answers string) string {
	var b strings.Builder
	br := bufio.NewReader(strings.NewReader(answers))
	for {
		length, chunked := int64(0), false
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = br.ReadString('\n'); err != nil {
				return b.String() + line
			}
			if n, ok := strings.CutPrefix(line, "Content-Length: "); ok {
				length, _ = strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			} else if line == "Transfer-Encoding: chunked\r\n" {
				chunked = true
			} else {
				b.WriteString(line)
			}
		}
		if chunked {
			_, _ = io.Copy(&b, httputil.NewChunkedReader(br))
			_, _ = br.ReadString('\n') // there is no trailer
		} else {
			_, _ = io.CopyN(&b, br, length)
		}
	}
}
