/*
 * One message, one webhook, two processes that may hold it. README.md says what is shown.
 *
 * Time goes by in ticks. Whoever has something to do at once does it before the next tick: a
 * process is late only where the model says that it stands still or is dead.
 *
 * Switches, 0 or 1 (spin -DNAME=1):
 *   KEEP   renewals go on until the record is durable; else until the webhook has answered
 *   LOST   a renewal may take effect and its answer be lost: then nobody has the receipt
 *   FENCE  who finds a receive without an outcome waits for as long as a record may take,
 *          and looks again, before it POSTs
 *   NOTE   whose renewal's answer is lost while a POST is under way writes until when that POST
 *          and its record take at most; who finds that gives the message back until then
 *
 * To see that the checks can fail:
 *   UNTOLD      a look-up that fails is taken for "delivered"
 *   UNRECORDED  the message is deleted beside its record, not after it
 *   KILLED, STILL, NO_QUEUE, NO_STORE  0: this does not excuse a second 2xx
 */
#ifndef KEEP
#define KEEP 1
#endif
#ifndef LOST
#define LOST 1
#endif
#ifndef FENCE
#define FENCE 0
#endif
#ifndef NOTE
#define NOTE 0
#endif
#ifndef UNTOLD
#define UNTOLD 0
#endif
#ifndef UNRECORDED
#define UNRECORDED 0
#endif
#ifndef KILLED
#define KILLED 1
#endif
#ifndef STILL
#define STILL 1
#endif
#ifndef NO_QUEUE
#define NO_QUEUE 1
#endif
#ifndef NO_STORE
#define NO_STORE 1
#endif

#define LEASE 2 /* ticks that storage grants */
#define SLOW  3 /* ticks that a record takes at most: after them the store is dead */
#define WHOLE 3 /* ticks that a POST takes at most once it is noted: more than a lease */
#define TRIES 2 /* refusals after which the message is given up */

mtype = { idle, lookup, waits, posts, records, deletes, dead };

/* The queue. */
bool present = true;
byte left;       /* of the lease, in ticks; 0: who asks receives the message */
bool again;      /* it was received before: its dequeue count is above 1 */

/* The tables. */
bool delivered;  /* the record of the 2xx is durable */
bool deadLetter; /* the dead letter's row is durable */
byte refused;    /* recorded refusals */
byte noted;      /* ticks for which a note keeps others from the message */
bool open[2];    /* this process received it, and no outcome of that is on record */

/* What the receiver saw, and whether the exception holds. */
byte taken;      /* 2xx */
bool excused;

/* The processes. */
mtype at[2] = idle;
bool receipt[2]; /* has the receipt that storage takes now */
bool asked[2];   /* has tried to renew in this tick */
bool covered[2]; /* its POST is noted */
bool late[2];    /* its record has to be durable within this lease: nobody can be told any more */
bool still[2];   /* stands still: stopped by a signal, or without a CPU */
byte since[2];   /* ticks since the record was sent, or since the wait began */
bool sent[2];    /* a record is on its way, whatever becomes of who sent it */

/* From the last look at the lease to the durable record a process must not die or stand still. */
/* By its own clock: no POST begins on a lease that has ended, or could not be renewed. */
#define holds(h) (receipt[h] && left == LEASE)

#define exposed(h) (at[h] == posts || at[h] == records)

#define renews(h) (receipt[h] && left == 1 && !asked[h] && \
	(at[h] == lookup || at[h] == waits || at[h] == posts || (at[h] == records && KEEP)))

/* What h has to do before time goes on. */
#define busy(h) (at[h] != dead && !still[h] && (renews(h) || \
	at[h] == lookup || at[h] == deletes || \
	(at[h] == posts && left <= 1 && !receipt[h] && !covered[h]) /* the POST is cut short */ || \
	(at[h] == posts && covered[h] && noted <= SLOW + 1) /* its time is up */ || \
	(at[h] == waits && (since[h] >= SLOW || !receipt[h] || left == 0))))

#define overdue(h) (sent[h] && since[h] >= SLOW)

inline tickOf(h) {
	asked[h] = false;
	if
	:: (sent[h] || at[h] == waits) && since[h] < SLOW -> since[h]++
	:: else
	fi
}

active proctype Clock() {
end:	do
	:: atomic { present && !busy(0) && !busy(1) && !overdue(0) && !overdue(1) ->
			if
			:: left > 0 -> left--
			:: else
			fi;
			tickOf(0); tickOf(1);
			noted = (noted > 0 -> noted - 1 : 0);
			/* the store did not take the record for the rest of a lease */
			excused = excused || (NO_STORE && left == 0 && (late[0] && sent[0] || late[1] && sent[1]));
			printf("tick: %d left of the lease\n", left)
		}
	od
}

/* The table takes effect when it likes, within SLOW, or is dead. */
active proctype Store() {
	byte h;
end:	do
	:: atomic { (sent[0] || sent[1]) ->
			if
			:: sent[0] -> h = 0
			:: sent[1] -> h = 1
			fi;
			sent[h] = false; delivered = true; open[h] = false; since[h] = 0;
			printf("the record of %d is durable\n", h)
		}
	:: atomic { (overdue(0) || overdue(1)) -> /* the store is dead: the record is not written */
			if
			:: overdue(0) -> h = 0
			:: overdue(1) -> h = 1
			fi;
			sent[h] = false; excused = excused || NO_STORE; since[h] = 0;
			printf("the store is dead: no record of %d\n", h)
		}
	od
}

/* Renewing is at half of the lease, and tried to its end. */
inline renew(h) {
	asked[h] = true;
	if
	:: left = LEASE; printf("%d renews\n", h)
	:: LOST -> left = LEASE; receipt[h] = false; printf("%d renews, and the answer is lost\n", h);
		if
		:: NOTE && at[h] == posts -> noted = WHOLE + SLOW; covered[h] = true; printf("%d tells others\n", h)
		:: NOTE && at[h] == posts -> excused = excused || NO_STORE; printf("%d can tell nobody\n", h)
		:: NOTE && at[h] == records -> late[h] = true
		:: else
		fi
	:: excused = excused || (NO_QUEUE && exposed(h)); /* the queue is dead to the lease's end */
		printf("%d can't renew\n", h)
	fi
}

inline fate(h) {
	if
	:: !still[h] && at[h] != idle -> /* killed; another process takes its place */
		excused = excused || (KILLED && exposed(h));
		if
		:: at[h] == posts -> /* the webhook has taken it, and nobody here knows */
			taken = (taken < 2 -> taken + 1 : 2);
			assert(taken <= 1 || excused) /* I2 */
		:: sent[h] -> sent[h] = false /* the record never left */
		:: true
		fi;
		receipt[h] = false; covered[h] = false; at[h] = dead; printf("%d is killed\n", h)
	:: !still[h] && at[h] != idle ->
		excused = excused || (STILL && exposed(h));
		still[h] = true; printf("%d stands still\n", h)
	:: still[h] -> still[h] = false; printf("%d goes on\n", h)
	fi
}

inline look(h) {
	if
	:: delivered -> at[h] = deletes; printf("%d finds the record\n", h)
	:: !delivered && !holds(h) -> at[h] = idle; receipt[h] = false
	:: !delivered && noted > 0 -> /* given back until then */
		left = (receipt[h] -> noted : left); receipt[h] = false; at[h] = idle; printf("%d finds the note\n", h)
	:: !delivered && noted == 0 && holds(h) && (!FENCE || !(open[0] || open[1])) -> at[h] = posts; open[h] = true; printf("%d finds nothing, POSTs\n", h)
	:: !delivered && holds(h) && FENCE && (open[0] || open[1]) -> at[h] = waits; since[h] = 0; printf("%d finds nothing, waits\n", h)
	:: UNTOLD -> at[h] = deletes
	:: true -> left = (receipt[h] -> 0 : left); receipt[h] = false; at[h] = idle; /* given back */
		printf("%d can't look up\n", h)
	fi
}

inline answer(h) {
	if
	:: receipt[h] || left > 1 || covered[h] && noted > SLOW -> /* 2xx */
		printf("2xx to %d\n", h);
		taken = (taken < 2 -> taken + 1 : 2);
		assert(taken <= 1 || excused); /* I2 */
		sent[h] = true; since[h] = 0; covered[h] = false; late[h] = false;
		at[h] = (UNRECORDED -> deletes : records)
	:: receipt[h] && refused + 1 < TRIES -> /* recorded, and abandoned */
		refused++; open[h] = false; left = 0; receipt[h] = false; at[h] = idle;
		printf("%d is refused, and gives it back\n", h)
	:: receipt[h] && refused + 1 >= TRIES -> deadLetter = true; open[h] = false; at[h] = deletes
	:: at[h] = idle; receipt[h] = false; covered[h] = false; /* cut short, no verdict: the lease gives it back */
		printf("the POST of %d is cut short\n", h)
	fi
}

proctype Holder(byte h) {
end:	do
	:: atomic { at[h] == dead && !sent[h] -> at[h] = idle }
	:: atomic { at[h] != dead && (at[h] != idle || still[h]) -> fate(h) }
	:: atomic { !still[h] && renews(h) -> renew(h) }
	:: atomic { !still[h] && at[h] == idle && present && left == 0 && !sent[h] ->
			left = LEASE; receipt[h] = true; receipt[1 - h] = false; asked[h] = false; late[h] = false;
			if
			:: again -> at[h] = lookup
			:: else -> at[h] = posts; open[h] = true
			fi;
			again = true;
			printf("%d receives\n", h)
		}
	:: atomic { !still[h] && at[h] == lookup && !renews(h) -> look(h) }
	:: atomic { !still[h] && at[h] == waits && !renews(h) && (!receipt[h] || left == 0 || since[h] >= SLOW && !holds(h)) -> at[h] = idle; receipt[h] = false }
	:: atomic { !still[h] && at[h] == waits && !renews(h) && holds(h) && since[h] >= SLOW ->
			if
			:: delivered -> at[h] = deletes
			:: else -> at[h] = posts; open[h] = true; printf("%d has waited, POSTs\n", h)
			fi
		}
	:: atomic { !still[h] && at[h] == posts && !renews(h) -> answer(h) }
	:: atomic { !still[h] && at[h] == records && !sent[h] -> at[h] = deletes } /* durable, or not to be had */
	:: atomic { !still[h] && at[h] == deletes ->
			if
			:: receipt[h] -> /* a lapsed lease is still worth a delete */
				assert(taken > 0 || deadLetter); /* I1 */
				assert(delivered || deadLetter || excused); /* I1: its end is on record */
				present = false; printf("%d deletes\n", h)
			:: receipt[h] -> skip /* refused: it comes back */
			:: else
			fi;
			receipt[h] = false; at[h] = idle
		}
	od
}

init { atomic { run Holder(0); run Holder(1) } }
