package former

import (
	"net/http"
	"strings"
)

// Chromium is what a current Chromium on a desktop sends to a trustworthy origin
// for a page that it navigates to.
func Chromium() http.Header {
	h := http.Header{}
	for line := range strings.Lines(`sec-ch-ua-platform: "Linux"
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36
sec-ch-ua: "Chromium";v="142", "Not_A Brand";v="99"
sec-ch-ua-mobile: ?0
Upgrade-Insecure-Requests: 1
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7
Sec-Fetch-Site: same-origin
Sec-Fetch-Mode: navigate
Sec-Fetch-User: ?1
Sec-Fetch-Dest: document
Accept-Encoding: gzip, deflate, br, zstd
Accept-Language: en-GB,en;q=0.9,uk;q=0.8,de;q=0.7
Cookie: _ga=GA1.1.1804289383.1719830000; _ga_X7T2KQ90WD=GS2.1.s1761052410$o14$g1$t1761052688$j41$l0$h0; session=7b1f8a40c2d94e6fb0a3951e8d27c6f4; theme=dark; consent=analytics%3D1%26ads%3D0; lang=en
`) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		h.Set(name, value)
	}
	return h
}
