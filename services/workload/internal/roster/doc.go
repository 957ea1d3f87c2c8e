// Package roster divides what replicas of a service do by themselves among them, so that
// of each thing one takes care, and another soon where that one is gone.
//
// Each replica has a Lease of its own, which it renews, and lists those of the others.
// A key is that replica's which ranks highest for it (rendezvous hashing): all who see the
// same replicas agree, shares are about equal, and when one comes or goes only what is
// its changes hands. There is no leader and no lease for a share.
//
//	every For/3    renew the own lease, then list all
//	2 For/3        who has not renewed for so long takes care of nothing any more
//	For            whose lease didn't change for so long is gone: others take over.
//	               Who comes (again) waits as long, unless nobody else is there
//
// No two take care of the same at once, as far as a key is asked about where it is acted
// on. Who comes has its lease written before it lists, so each other one has listed it, or
// has stopped for not renewing, when it begins. Who is gone has stopped before others find
// it gone. That one sees a replica go sooner than another one does harms nothing: what was
// that replica's goes to the highest of the others, whom both agree on. Machines' clocks
// are not compared: a lease's age is how long ago it was seen to change.
//
// A key may have nobody for up to two times For and a renewal, after a replica died while
// another one came.
package roster
