/**
 * Who is present, in the order of arrival. Anyone leaves in constant time.
 *
 * A `Set` would do the same, but not for members that come and go by the thousand each second: V8 rebuilds the table of a set
 * after so many deletions, and leaves in each old table a reference to the next. Once one of these tables is in the old
 * generation, all that the later ones hold survives, dead or not, until the next full collection. The links here are cut when
 * a member leaves. (Measured 2026-11-30 with Node 20, draining: with sets each collection of the young generation moves
 * 1.3 MB to the old one, with rosters 0.3 MB.)
 */
export class Roster<Member> implements Iterable<Member> {
  private head: Place<Member> | undefined
  private tail: Place<Member> | undefined
  private members = 0

  get size(): number {
    return this.members
  }

  /** Who came first of those that are present. */
  get first(): Member | undefined {
    return this.head?.member
  }

  add(member: Member): Place<Member> {
    const place = new Place(member, this, this.tail)
    if (this.tail === undefined) this.head = place
    else this.tail.next = place
    this.tail = place
    this.members++
    return place
  }

  /** Answers whether the member was present. */
  remove(place: Place<Member>): boolean {
    if (place.roster !== this) return false
    const { next, previous } = place
    if (previous === undefined) this.head = next
    else previous.next = next
    if (next === undefined) this.tail = previous
    else next.previous = previous
    place.roster = place.previous = place.next = undefined
    this.members--
    return true
  }

  /** The members of the moment when it begins. */
  [Symbol.iterator](): Iterator<Member> {
    const members: Array<Member> = []
    for (let place = this.head; place !== undefined; place = place.next) members.push(place.member)
    return members[Symbol.iterator]()
  }
}

/** Where a member stands. */
export class Place<Member> {
  next: Place<Member> | undefined

  /** @param roster undefined once the member has left */
  constructor(
    readonly member: Member,
    public roster: Roster<Member> | undefined,
    public previous: Place<Member> | undefined
  ) {}
}
