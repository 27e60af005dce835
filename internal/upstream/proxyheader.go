package upstream

import (
	"errors"
	"fmt"
	"strings"

	"millrace/internal/wire/proxyline"
)

// proxyHeaders are the values of Options.ProxyProtocol.
var proxyHeaders = map[string]proxyline.Version{"v1": proxyline.V1, "v2": proxyline.V2}

// proxyHeader is what a connection for q begins with: whose request comes on it,
// by the PROXY protocol. Probes come from nobody. nil: nothing.
func (s *server) proxyHeader(q *Request) []byte {
	version, ok := proxyHeaders[s.options.ProxyProtocol]
	if !ok {
		return nil
	}
	return proxyline.Append(nil, version, q.Client, q.Local)
}

func (o Options) checkIntroduction(faults map[string]error) {
	if o.ProxyProtocol == "" {
		return
	}
	if _, ok := proxyHeaders[o.ProxyProtocol]; !ok {
		faults["proxy_protocol"] = fmt.Errorf("there is no version %q of the PROXY protocol: write v1 or v2", o.ProxyProtocol)
		return
	}
	for _, to := range o.To {
		if strings.HasPrefix(to, "h2c:") {
			faults["proxy_protocol"] = errors.New("a connection of HTTP/2 carries requests of many clients: write http:// instead of h2c://")
		}
	}
}
