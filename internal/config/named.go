package config

import (
	"strings"

	"millrace/internal/access/admit"
)

// Files are all files, folders and sockets that the config names.
func (c *Config) Files() (all []string) {
	c.paths(func(p *string) { all = append(all, *p) })
	return all
}

// paths calls each with every file, folder and socket that the config names.
func (c *Config) paths(each func(*string)) {
	from := func(paths ...*string) {
		for _, p := range paths {
			if *p != "" && *p != "-" {
				each(p)
			}
		}
	}
	socket := func(p *string) {
		if path, ok := strings.CutPrefix(*p, unixPrefix); ok && path != "" {
			from(&path)
			*p = unixPrefix + path
		}
	}
	from(&c.Log.File)
	from(c.TLS.Files()...)
	for i := range c.Listen {
		socket(&c.Listen[i])
	}
	for i := range c.TLS.Listen {
		socket(&c.TLS.Listen[i])
	}
	socket(&c.Admin.Listen)
	from(&c.Maintenance.File)
	for name, t := range c.Tables {
		from(&t.File)
		c.Tables[name] = t
	}
	for i := range c.Sandbox.Read {
		from(&c.Sandbox.Read[i])
	}
	for i := range c.Sandbox.Write {
		from(&c.Sandbox.Write[i])
	}
	for _, s := range c.Sites {
		from(listFiles(s.Access)...)
		for i := range s.Plugins {
			from(&s.Plugins[i].Module)
		}
		if s.Auth != nil {
			from(&s.Auth.File)
			if s.Auth.JWT != nil {
				from(&s.Auth.JWT.PublicKey)
			}
		}
		for i := range s.Rules {
			if s.Rules[i].Respond != nil {
				from(&s.Rules[i].Respond.File)
			}
		}
		for _, r := range s.Routes {
			r.paths(from, socket)
		}
	}
}

// paths does this for one route.
func (r Route) paths(from func(paths ...*string), socket func(*string)) {
	if r.Static != nil {
		from(&r.Static.Root)
		for i := range r.Static.Fallback {
			from(&r.Static.Fallback[i])
		}
	}
	if r.Respond != nil {
		from(&r.Respond.File)
	}
	from(listFiles(r.Access)...)
	for i := range r.Plugins {
		from(&r.Plugins[i].Module)
	}
	if r.Auth != nil {
		from(&r.Auth.File)
		if r.Auth.JWT != nil {
			from(&r.Auth.JWT.PublicKey)
		}
	}
	if r.Cache != nil {
		from(&r.Cache.Disk)
	}
	if r.Images != nil {
		from(&r.Images.Store)
	}
	if r.WebSocket != nil && r.WebSocket.Channels != nil && r.WebSocket.Channels.Auth.JWT != nil {
		from(&r.WebSocket.Channels.Auth.JWT.PublicKey)
	}
	if p := r.proxied(); p != nil {
		from(&p.TLS.CA, &p.TLS.Cert, &p.TLS.Key)
		for i := range p.To {
			socket(&p.To[i])
		}
	}
}

// listFiles are the names of the files of an access.
func listFiles(o *admit.Access) (names []*string) {
	if o == nil {
		return nil
	}
	for _, list := range [][]string{o.AllowFiles, o.DenyFiles} {
		for i := range list {
			names = append(names, &list[i])
		}
	}
	return names
}
