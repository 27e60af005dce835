package meter

import (
	"cmp"
	"slices"
)

// Job returns the counters of a job and makes them at the first call. It locks
// and searches: ask once when the job is built, not per request. The same name
// has the same counters for the life of the process, whatever is reloaded.
func (m *Meters) Job(name string) *Job {
	return m.jobs.get(name, func(name string) *Job { return &Job{Name: name} })
}

// Route returns the counters of a job for one route of a site, as Job does. From
// the 65th route on, those of the job are returned.
func (m *Meters) Route(site, route, job string) *Job {
	key := site + "\x00" + route + "\x00" + job
	if j := m.routes.known(key, func(string) *Job { return &Job{Name: job, Site: site, Route: route} }); j != nil {
		return j
	}
	return m.Job(job)
}

// Jobs lists the counters that exist, ordered by the job's name, then by site and
// route. A name occurs once for each of its routes: who wants a job's totals adds
// them up.
func (m *Meters) Jobs() []*Job {
	all := append(m.jobs.list(), m.routes.list()...)
	slices.SortFunc(all, func(a, b *Job) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Site, b.Site), cmp.Compare(a.Route, b.Route))
	})
	return all
}
