package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// PublishedTTL is how long the published proxy kept every answer.
const PublishedTTL = 5 * time.Minute

// published is the config file of the small comment-count proxy whose job the
// cache can take over: {"HostPort": …, "Stacosys": …, "CorsOrigin": …}.
type published struct {
	HostPort   string `yaml:"HostPort"`   // where it listens
	Stacosys   string `yaml:"Stacosys"`   // its upstream
	CorsOrigin string `yaml:"CorsOrigin"` // whose pages may read the answers
}

// Published makes a config that does what a file of the published proxy says,
// with settings on top. The error is of type [Findings] unless the file could
// not be read at all.
func Published(path string, settings ...Setting) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parsePublished(path, data, settings...)
}

// parsePublished reads the file as YAML, of which JSON is a part but for its
// tabs: so what is wrong with it has its line and column, too.
func parsePublished(name string, data []byte, settings ...Setting) (*Config, error) {
	doc, body := parse(name, bytes.ReplaceAll(data, []byte("\t"), []byte(" ")))
	var p published
	if body != nil {
		d := newDecoder(doc)
		d.verbatim = true
		d.document(body, &p)
	}
	c := p.config(doc)
	if err := c.finish(doc, settings); err != nil {
		return nil, err
	}
	return c, nil
}

// config is what the file asks for. What is wrong with a key of the result is
// reported where the file has it.
func (p published) config(doc *document) *Config {
	to := p.Stacosys
	if full, err := Upstream(to); err == nil {
		to = full // Go's client took nothing less, but what is meant is clear
	}
	c := ForCache(to)
	o := c.Sites[0].Routes["/"].Cache
	o.TTL = PublishedTTL
	if p.HostPort != "" {
		c.Listen = []string{p.HostPort}
	}
	if p.CorsOrigin != "" {
		o.CORS.Origins = []string{p.CorsOrigin}
	}
	const route = "sites[0].routes[/].cache"
	for to, from := range map[string]string{
		"listen": "HostPort", "listen[0]": "HostPort",
		route + ".to": "Stacosys", route + ".to[0]": "Stacosys",
		route + ".cors": "CorsOrigin", route + ".cors.origins": "CorsOrigin", route + ".cors.origins[0]": "CorsOrigin",
	} {
		doc.unread[to] = doc.unread[from]
		if at, ok := doc.values[from]; ok {
			doc.values[to], doc.keys[to] = at, doc.keys[from]
		}
	}
	if p.Stacosys == "" && !doc.unread["Stacosys"] && !doc.unread[unknownKey] {
		doc.at(doc.key("Stacosys"), "\"Stacosys\" is missing: the address of the upstream", "for example \"Stacosys\": \"http://127.0.0.1:5000\"")
		doc.unread[route+".to"], doc.unread[route+".to[0]"] = true, true
	}
	return c
}

// FromPublished is millrace.yaml for what the file at path says.
func FromPublished(path string) (string, error) {
	c, err := Published(path)
	if err != nil {
		return "", err
	}
	o := c.Sites[0].Routes["/"].Cache
	var b strings.Builder
	fmt.Fprintf(&b, "# Made from %s by: millrace init --from-json\n", printable(path))
	b.WriteString("# Every key: docs/config.md\n")
	fmt.Fprintf(&b, "listen: %s\n\nsites:\n  - routes:\n      /:\n        cache:\n", yamlText(c.Listen[0]))
	fmt.Fprintf(&b, "          to: %s\n", yamlText(o.To[0]))
	fmt.Fprintf(&b, "          ttl: %-15s# of answers that give no lifetime themselves\n", short(o.TTL))
	if len(o.CORS.Origins) > 0 {
		fmt.Fprintf(&b, "          cors: %s\n", yamlText(o.CORS.Origins[0]))
	}
	return b.String(), nil
}

// yamlText is a text in quotes that YAML and the environment leave alone.
func yamlText(s string) string { return strconv.Quote(strings.ReplaceAll(s, "$", "$$")) }
