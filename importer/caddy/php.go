package caddy

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// php translates php_fastcgi: files stand beside scripts here, so it takes over
// the file_server that follows it.
func (t *site) php(d *draft.Directive, sc *scope, args []string, a *answer) error {
	root := sc.root
	to := sockets(args)
	if len(to) == 0 {
		return errors.New("name php-fpm's socket in php.to")
	}
	o := &plan.PHP{To: to, Params: map[string]string{}}
	for _, b := range d.Block {
		if t.im.reported("php_fastcgi", b) {
			continue
		}
		t.im.Used(b)
		switch b.Name {
		case "root":
			o.Root = b.Arg(0)
			if root == "" {
				root = t.im.path(b.Arg(0))
			}
		case "index":
			t.front(b, o)
		case "env":
			value, err := template(b.Arg(1), inText, "")
			if err != nil || strings.Contains(value, "{") {
				t.im.Leave(b, "params of php have no variables")
				continue
			}
			o.Params[b.Arg(0)] = value
		case "dial_timeout":
			t.setDuration(b, &o.Connect, "connect")
		case "read_timeout":
			t.setDuration(b, &o.Timeout, "timeout")
		default:
			t.im.Leave(b, "no option of php: see docs/php.md")
		}
	}
	if root == "" {
		return errors.New("the folder is Caddy's own working directory: name it in static.root")
	}
	if sc.broken != nil || sc.to != "" {
		return errors.New("php has no other paths than those that clients ask for: write a rule with rewrite before it")
	}
	a.static, a.strips, a.proxies = true, sc.strip != "", true
	a.build = func(key string) (*plan.Route, error) {
		folder := root
		switch prefix := strings.TrimSuffix(key, "/"); {
		case strings.HasPrefix(key, "@") && a.in != nil:
			return nil, fmt.Errorf("php below %s: write the route by hand", a.path())
		case strings.HasPrefix(key, "@"), prefix == "":
		case a.strips && key == sc.strip:
		case strings.Contains(key, "*") || !strings.HasSuffix(key, "/"):
			return nil, fmt.Errorf("php is for folders: write the route for %s by hand", key)
		default:
			folder = path.Join(root, prefix)
		}
		return &plan.Route{Static: plan.Static{Root: folder}, PHP: *o}, nil
	}
	t.served(d, sc)
	return nil
}

// sockets are php-fpm's addresses as php.to has them.
func sockets(list []string) (to []string) {
	for _, u := range list {
		addr, is := strings.CutPrefix(strings.TrimPrefix(u, "php_fastcgi://"), "unix/")
		if is {
			addr = "/" + strings.TrimLeft(addr, "/")
			addr, _, _ = strings.Cut(addr, "|")
		}
		to = append(to, addr)
	}
	return to
}

// front is the script for what does not exist.
func (t *site) front(b *draft.Directive, o *plan.PHP) {
	switch name := b.Arg(0); name {
	case "off":
		o.Front = "off"
	case "index.php":
	default:
		o.Index, o.Front = name, name
	}
}

// served closes what Caddy would not have shown: without file_server, only
// scripts answer.
func (t *site) served(d *draft.Directive, sc *scope) {
	if !sc.fileServer {
		t.Close(d, "there is no file_server beside it, so Caddy shows no file of the folder, and here files are shown: look whether that is right")
	}
}

// setDuration takes a time over.
func (t *site) setDuration(b *draft.Directive, to *string, key string) {
	v, ok := duration(b.Arg(0))
	if *to = v; !ok {
		t.im.Leave(b, "write it as "+key+", as in 30s")
	}
}
