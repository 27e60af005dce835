// Package php runs the PHP files of a folder by php-fpm, over FastCGI, and has
// the folder's other files served by package static. It is a plain
// [http.Handler].
//
// A request's life: its path is a script, a folder with one, a file, or none of
// these, which the front controller answers (script.go); the request's body is
// taken in whole before a worker of php-fpm is asked (spool.go); php-fpm gets the
// request as parameters (params.go); the answer begins with a head (head.go), and is
// read as fast as php-fpm writes it, however slow the client is (exchange.go). An event
// loop does all that for simple requests, as far as it need not wait (loop.go).
package php

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"strings"
	"time"

	"millrace/internal/wire/netset"
)

// Options of the job. Only To is needed.
type Options struct {
	// To is where php-fpm listens: the path of its socket, unix:/path, or
	// host:port. Several take turns. Required.
	To []string `yaml:"to"`
	// Root is the folder as php-fpm sees it, where that is another than
	// static's: in a container or a chroot. Default: static's root.
	Root string `yaml:"root"`
	// Index is the script that answers for its folder. Default index.php.
	Index string `yaml:"index"`
	// Front is the script, relative to the root, that answers for what does not
	// exist, as WordPress, Laravel and Symfony want it; "off" for none. Default
	// index.php, if there is one. With {path} behind it, as in index.php{path}, it
	// gets the path that it answers for as PATH_INFO, as Nextcloud wants it.
	Front string `yaml:"front" expand:"no"`
	// Except are folders in which no PHP is run, as in /wp-content/uploads/: a
	// file that a visitor could put there must not become a program.
	Except []string `yaml:"except"`
	// Only is an expression (RE2) for the paths that scripts are run for, as in
	// ^/index\.php(/|$): the request's where a script stands in it, else that of the
	// script which answers for it. Others do not exist. Default: all.
	Only string `yaml:"only" expand:"no"`
	// Params are further FastCGI parameters, as in {APP_ENV: prod}.
	Params map[string]string `yaml:"params"`

	// TrustForwarded lists clients, by address or network (10.0.0.0/8; unix for
	// clients on UNIX sockets), whose claims reach scripts as HTTP_X_FORWARDED_FOR,
	// HTTP_X_FORWARDED_PROTO and the like: load balancers and proxies in front.
	// Those of limits.trusted_proxies are trusted as well. Everybody else's are
	// removed. Default none.
	TrustForwarded []string `yaml:"trust_forwarded"`
	// Connections is how many requests php-fpm is asked at once; further ones
	// wait. Default 64.
	Connections int `yaml:"connections"`
	// Wait is how long a request waits for one of them; then it is answered with
	// 503. Default 30s.
	Wait time.Duration `yaml:"wait"`
	// Idle is how many idle connections to php-fpm are kept. Each holds one of
	// its workers: more than half of pm.max_children would lock others out.
	// Default 0.
	Idle int `yaml:"idle"`
	// Connect is how long a connection to php-fpm may take. Default 5s.
	Connect time.Duration `yaml:"connect"`
	// Timeout is how long php-fpm may be silent. Default 60s.
	Timeout time.Duration `yaml:"timeout"`
}

// off switches something off that takes a name.
const off = "off"

// ofPath stands behind a front controller that gets the path.
const ofPath = "{path}"

// maxExpression bounds an expression, in bytes.
const maxExpression = 1000

// UnmarshalText lets a route say "php: /run/php/php-fpm.sock".
func (o *Options) UnmarshalText(text []byte) error {
	o.To = []string{string(text)}
	return nil
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o *Options) Check() map[string]error {
	found := map[string]error{}
	if len(o.To) == 0 {
		found["to"] = errors.New("php needs \"to\": where php-fpm listens, as in /run/php/php-fpm.sock or 127.0.0.1:9000")
	}
	for i, to := range o.To {
		if err := checkAddress(to); err != nil {
			found[fmt.Sprintf("to[%d]", i)] = err
		}
	}
	if _, err := regexp.Compile(o.Only); err != nil || len(o.Only) > maxExpression {
		found["only"] = fmt.Errorf("%q is not a regular expression (RE2) of up to %d bytes, as in ^/index\\.php(/|$)", o.Only, maxExpression)
	}
	front, _ := strings.CutSuffix(o.Front, ofPath)
	for key, script := range map[string]string{"index": o.Index, "front": front} {
		if script != "" && script != off && !isScript(path.Base(script)) {
			found[key] = fmt.Errorf("%q is not a PHP file, as in index.php", script)
		}
	}
	if strings.Contains(o.Index, "/") {
		found["index"] = fmt.Errorf("%q is not the name of a file in each folder, as in index.php", o.Index)
	}
	for i, folder := range o.Except {
		if !strings.HasPrefix(folder, "/") || !strings.HasSuffix(folder, "/") {
			found[fmt.Sprintf("except[%d]", i)] = fmt.Errorf("%q is not a folder, as in /uploads/", folder)
		}
	}
	if _, err := netset.Parse(o.TrustForwarded); err != nil {
		found["trust_forwarded"] = err
	}
	if o.Root != "" && !path.IsAbs(o.Root) {
		found["root"] = fmt.Errorf("%q is not a whole path, as in /var/www/html", o.Root)
	}
	for name, value := range o.Params {
		if name == "" || strings.ContainsAny(name+value, "\x00\r\n") || strings.HasPrefix(name, "HTTP_") {
			found["params"] = fmt.Errorf("%q cannot be a parameter", name)
		}
	}
	return found
}

func checkAddress(to string) error {
	path, unix := strings.CutPrefix(to, "unix:")
	switch {
	case strings.HasPrefix(path, "/"):
		return nil
	case unix:
		return fmt.Errorf("%q is not the whole path of a socket, as in unix:/run/php/php-fpm.sock", to)
	}
	if _, port, err := net.SplitHostPort(to); err != nil || port == "" {
		return fmt.Errorf("%q is neither a socket's path, as in /run/php/php-fpm.sock, nor an address, as in 127.0.0.1:9000", to)
	}
	return nil
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Wait, 30 * time.Second}, {&o.Connect, 5 * time.Second}, {&o.Timeout, 60 * time.Second}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	o.Index = cmp.Or(o.Index, "index.php")
	o.Front = cmp.Or(o.Front, "index.php")
	if o.Connections <= 0 {
		o.Connections = 64
	}
	return o
}
