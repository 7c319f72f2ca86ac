// Uses of the tracker by a client whose types openapi-typescript has generated. It is checked and not run.
import type { components, paths } from "./api.ts";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;
type Ticket = components["schemas"]["Ticket"];
type Problem = components["schemas"]["Problem"];

type TicketPage = paths["/tickets"]["get"]["responses"][200]["content"]["application/json"];
export const page: Equal<TicketPage["items"], Ticket[]> = true;
export const cursor: Equal<TicketPage["next_cursor"], string | null> = true;
export const back: Equal<TicketPage["has_previous"], boolean> = true;

type Responses = paths["/tickets/{key}"]["patch"]["responses"];
export const changed: Equal<Responses[200]["content"]["application/json"], Ticket> = true;
export const stale: Equal<Responses[412]["content"]["application/problem+json"], Problem> = true;
export const invalid: Equal<keyof Responses[422]["content"], "application/problem+json"> = true;
export const refused: Equal<Responses[422]["content"]["application/problem+json"], Problem> = true;
export const required: Equal<Responses[428]["content"]["application/problem+json"], Problem> = true;

type Condition = paths["/tickets/{key}"]["patch"]["parameters"]["header"];
export const version: Equal<Condition, { "if-match": string; "if-none-match"?: string | null }> = true;

type Made = paths["/projects/{slug}/tickets"]["post"]["requestBody"]["content"]["application/json"];
export const body: Made = { title: "It fails", reporter_id: "01J00000000000000000000000" };
// @ts-expect-error a ticket needs a reporter
export const without: Made = { title: "It fails" };
// @ts-expect-error the service sets the status of a new ticket
export const withStatus: Made = { title: "", reporter_id: "", status: "done" };

type Patch = paths["/tickets/{key}"]["patch"]["requestBody"]["content"]["application/json"];
export const patch: Patch = { status: "active" };
// @ts-expect-error a ticket keeps its project
export const moved: Patch = { project_id: "01J00000000000000000000000" };
// @ts-expect-error there is no such status
export const odd: Patch = { status: "lost" };

type Counts = paths["/projects/{slug}/counts"]["get"]["responses"][200]["content"]["application/json"];
export const open = (counts: Counts): number | undefined => counts.open;

type Query = NonNullable<paths["/tickets"]["get"]["parameters"]["query"]>;
export const query: Query = { status: "open", tags__contains: "ui", order_by: "-id", size: 50 };
// @ts-expect-error there is no such status
export const nothing: Query = { status: "lost" };
// @ts-expect-error this order is not offered
export const order: Query = { order_by: "title" };

export function shown(ticket: Ticket): string {
  const status: "open" | "active" | "done" = ticket.status;
  return `${ticket.id.toFixed()} ${status} ${ticket.tags.join()} ${ticket.created_at}`;
}

export function told(problem: Problem): string[] {
  return [problem.title, problem.code ?? "", ...(problem.errors ?? []).map((error) => error.loc.join("."))];
}

type RecordEvent = components["schemas"]["RecordEvent_Ticket_"];
export const event = (sent: RecordEvent): Ticket | null => sent.event === "changed" ? sent.record : null;
