"""Write data/: requests, and the tool that each is for.

Every request is made from a wording with gaps and from words for the gaps. Training and held-out requests have wordings
of their own, so a model can't answer a held-out request by its sentence; the words for the gaps occur in both.

    python make_data.py
"""

import json
import random
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 7
TRAIN_ROWS, HELD_OUT_ROWS = 256, 100

GAPS = {
    "name": [
        "Anna",
        "Ben",
        "Chloe",
        "Dmitri",
        "Elena",
        "Farid",
        "Grace",
        "Hiro",
        "Ines",
        "Jonas",
        "Karim",
        "Noah",
    ],
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "next week", "tomorrow", "the 14th"],
    "time": ["9 am", "half past ten", "noon", "2 pm", "a quarter to four", "5:30 pm"],
    "topic": [
        "the budget",
        "the launch",
        "hiring",
        "the new website",
        "our roadmap",
        "the audit",
        "onboarding",
    ],
    "channel": ["#general", "#design", "#support", "#random", "#backend", "#marketing"],
    "fault": [
        "the login page crashes",
        "uploads time out",
        "dark mode flickers",
        "search returns nothing",
        "the export is empty",
        "the tests fail on Windows",
    ],
    "repo": ["web-app", "api-server", "mobile", "docs", "infra", "billing"],
    "song": ["Yesterday", "Take Five", "Imagine", "Clair de Lune", "Hey Jude", "Summertime", "Blue Train"],
    "city": ["Lisbon", "Oslo", "Nairobi", "Lima", "Kyoto", "Toronto", "Cairo", "Vienna", "Austin"],
    "amount": ["20 dollars", "45 euros", "99 pounds", "120 dollars", "15.50", "300 euros"],
    "order": ["4711", "A-1029", "88213", "B-77", "30045", "C-512"],
    "company": ["Acme", "Globex", "Initech", "Umbrella", "Hooli", "Soylent"],
    "sheet": ["Expenses", "Leads", "Inventory", "Hours", "Attendees", "Sales"],
}

# tool: (wordings to train on, wordings held out)
WORDINGS = {
    "GMAIL_SEND_EMAIL": (
        [
            "Send an email to {name} about {topic}",
            "Please email {name} and say that I am late",
            "Write a mail to {name} to ask about {topic}",
            "Can you mail {name} the notes on {topic}?",
            "I need an email to {company} about {topic}",
            "Reply to the email of {name} that {day} works",
            "Draft and send {name} an email with the agenda for {day}",
            "Forward the mail on {topic} to {name}",
            "Email {company} that we accept their offer for {amount}",
            "Let {name} know by email that {topic} is ready",
            "Mail {name}: see you on {day}",
            "Get back to {name} by email about {topic}",
        ],
        [
            "Drop {name} an email: {topic} has to wait until {day}",
            "Could an email go out to {name} regarding {topic}",
            "Answer {name} by mail, {topic} is fine with me",
            "Get a mail off to {company} before {day}, subject {topic}",
            "{name} should receive an email from me on {topic}",
        ],
    ),
    "SLACK_POST_MESSAGE": (
        [
            "Post in {channel} that {topic} is done",
            "Tell {channel} on Slack that I am out on {day}",
            "Send a Slack message to {name} about {topic}",
            "Write to {channel}: lunch at {time}",
            "Message {name} on Slack that the call moved to {time}",
            "Put a note about {topic} in the {channel} channel",
            "Ask {channel} who can help with {topic}",
            "Slack {name} the link on {topic}",
            "Drop a line in {channel} about {topic}",
            "Inform {channel} that {name} joins on {day}",
            "Say hello to {name} on Slack",
            "Remind everybody in {channel} of {topic} at {time}",
        ],
        [
            "Let everybody in {channel} know that {topic} starts at {time}",
            "Ping {name} over Slack regarding {topic}",
            "Announce {topic} in {channel}",
            "A short message for {channel}: no standup on {day}",
            "Share in {channel} on Slack what we decided about {topic}",
        ],
    ),
    "CALENDAR_CREATE_EVENT": (
        [
            "Schedule a meeting with {name} on {day} at {time}",
            "Put a call with {name} into my calendar for {time}",
            "Book an hour on {day} to talk about {topic}",
            "Set up an appointment with {company} on {day}",
            "Create an event about {topic} at {time}",
            "Add lunch with {name} to my calendar on {day}",
            "Plan a meeting on {topic} for {day}, {time}",
            "Block {time} on {day} in my calendar",
            "Arrange a call about {topic} with {company}",
            "Can we have a meeting on {topic} at {time}?",
            "Enter {topic} into the calendar, {day} at {time}",
            "Invite {name} to a meeting on {day}",
        ],
        [
            "Find a slot on {day} and book a meeting with {name}",
            "Make a calendar entry for {topic}, {day} at {time}",
            "I want to meet {name} at {time}, put it into the calendar",
            "Reserve {time} for an appointment about {topic}",
            "New event on {day}: {topic} with {name}",
        ],
    ),
    "GITHUB_CREATE_ISSUE": (
        [
            "Open an issue in {repo}: {fault}",
            "File a bug for {repo} because {fault}",
            "Create a GitHub issue saying that {fault}",
            "Report in {repo} that {fault}",
            "Make a ticket in the {repo} repository, {fault}",
            "{fault}, please file an issue",
            "Log a bug: {fault} in {repo}",
            "Add an issue on GitHub for {name}, {fault}",
            "We need an issue for {repo}: {fault}",
            "Note on GitHub that {fault}",
            "There is a bug in {repo}, {fault}",
            "Open a GitHub ticket about {repo}, {fault}",
        ],
        [
            "Somebody should track that {fault}, open a bug in {repo}",
            "Start an issue for {repo} since {fault}",
            "Put it on GitHub as a bug that {fault}",
            "We have a bug, {fault}, so submit an issue to {repo}",
            "The repository {repo} needs an issue: {fault}",
        ],
    ),
    "SPOTIFY_PLAY_SONG": (
        [
            "Play {song}",
            "Put on {song} please",
            "I want to hear {song}",
            "Start the song {song} on Spotify",
            "Play some music, maybe {song}",
            "Can you play the track {song} for {name}?",
            "Turn on {song} in the kitchen",
            "Listen to {song} again",
            "Next, play {song} on Spotify",
            "Some music please, {song} for example",
            "I feel like listening to {song}",
            "Play {song} once more for {name}",
        ],
        [
            "How about some music? {song} would be nice",
            "Let me listen to {song} now",
            "Spotify, next song: {song}",
            "Queue up the song {song} and play it",
            "{name} would love to hear {song}",
        ],
    ),
    "WEATHER_GET_FORECAST": (
        [
            "What is the weather in {city} on {day}?",
            "Will it rain in {city} {day}?",
            "Give me the forecast for {city}",
            "How warm is it in {city}?",
            "Is it sunny in {city} on {day}?",
            "Do I need an umbrella in {city}?",
            "Tell me the temperature in {city} at {time}",
            "Weather for {city}, {day}",
            "Is snow expected in {city}?",
            "What will the weather be like in {city} {day}?",
            "How cold is {city} at {time}?",
            "Check the forecast for {city} on {day}",
        ],
        [
            "Should I expect rain in {city} on {day}",
            "Show the weather forecast of {city} for {day}",
            "How cold does it get in {city} at {time}?",
            "I travel to {city} on {day}, what will the weather be?",
            "Any snow or rain coming to {city}?",
        ],
    ),
    "MAPS_GET_ROUTE": (
        [
            "How do I get to {city} from here?",
            "Give me directions to {city}",
            "Show me the way from {city} to {city}",
            "What is the fastest route to the {company} office?",
            "Navigate to {city}",
            "How long is the drive to {city}?",
            "Find a route to {company} that avoids tolls",
            "Directions from {city} to the station, please",
            "What is the best way to drive to {city}?",
            "How far is {city} from {city}?",
            "Lead me to the {company} office",
            "Show the shortest route to {city}",
        ],
        [
            "Which way do I drive to reach {city}?",
            "I need directions, destination {city}",
            "Plot the shortest route between {city} and {city}",
            "Take me from {city} to {company}, fastest way",
            "How far is it to drive from {city} to {city}?",
        ],
    ),
    "PAYPAL_REFUND_PAYMENT": (
        [
            "Refund order {order}",
            "Give {name} the {amount} back",
            "Please refund {amount} to {company}",
            "The customer {name} wants a refund for {order}",
            "Return the payment of {amount} for order {order}",
            "Issue a refund of {amount}",
            "Pay back {name} for order {order}",
            "Cancel the charge of {amount} and refund it",
            "{company} asks for its money back, {amount}",
            "Order {order} was charged by mistake, refund it",
            "Make a refund to {name}, {amount}",
            "Reverse the charge of {amount}",
        ],
        [
            "{name} was charged twice, refund {amount}",
            "Send {amount} back to the customer of order {order}",
            "Start a refund, order {order}, {amount}",
            "Reverse the payment for {order}, {name} gets a refund",
            "We owe {company} a refund over {amount}",
        ],
    ),
    "HUBSPOT_ADD_CONTACT": (
        [
            "Add {name} from {company} to our contacts",
            "Create a contact for {name}",
            "Save {name} as a new lead in HubSpot",
            "Put {name} of {company} into the CRM",
            "New contact: {name}, {company}",
            "Register {name} as a lead for {company}",
            "Store the contact details of {name} in the CRM",
            "Add a contact called {name} to HubSpot",
            "I met {name} of {company}, add them to the CRM",
            "{name} is a new lead",
            "Make {name} a contact in our CRM",
            "Contact to add: {name} who works for {company}",
        ],
        [
            "{name} works at {company}, make a contact in HubSpot",
            "Enter {name} into HubSpot as a contact",
            "Our CRM lacks {name} from {company}, add the contact",
            "Record a new lead for the CRM, {name} at {company}",
            "Keep {name} as a contact, company {company}",
        ],
    ),
    "EXCEL_ADD_ROW": (
        [
            "Add a row to the {sheet} sheet: {name}, {amount}",
            "Append {amount} to {sheet}",
            "Write {order} into the {sheet} spreadsheet",
            "Put a new line in {sheet} with {name} and {day}",
            "Log {amount} in the {sheet} sheet",
            "Insert a row for {company} in the spreadsheet {sheet}",
            "Enter {name}, {amount} as a row in {sheet}",
            "Add {day} and {amount} to my {sheet} spreadsheet",
            "{sheet} needs a new row: {name}",
            "Record {amount} for {day} in the spreadsheet {sheet}",
            "One more row for {sheet}, {company}",
            "Note {order} in the {sheet} sheet",
        ],
        [
            "The {sheet} spreadsheet needs another row for {name}",
            "Fill in one more line of the {sheet} sheet, {amount} on {day}",
            "Record {order} at the end of the spreadsheet {sheet}",
            "Extend the sheet {sheet} by a row with {company}, {amount}",
            "Please append a row, sheet {sheet}: {name}, {day}",
        ],
    ),
}


def requests(wordings: list[tuple[str, str]], count: int, rng: random.Random) -> list[dict[str, str]]:
    """`count` different requests, the wordings in turn and then shuffled."""
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < count:
        tool, wording = wordings[len(rows) % len(wordings)]
        query = wording
        for gap, words in GAPS.items():
            while f"{{{gap}}}" in query:
                word = rng.choice([word for word in words if word not in query])
                query = query.replace(f"{{{gap}}}", word, 1)
        query = query[0].upper() + query[1:]
        if query not in rows:
            rows[query] = {"query": query, "tool": tool, "wording": wording}
    shuffled = list(rows.values())
    rng.shuffle(shuffled)
    return shuffled


def by_tool(part: int) -> list[tuple[str, str]]:
    """(tool, wording) of the trained (0) or held-out (1) wordings, tools taking turns."""
    count = len(WORDINGS["GMAIL_SEND_EMAIL"][part])
    return [(tool, parts[part][i]) for i in range(count) for tool, parts in WORDINGS.items()]


def jsonl(rows: list[dict[str, str]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    rng = random.Random(SEED)
    return {
        "datasets/requests/v1/train.jsonl": jsonl(requests(by_tool(0), TRAIN_ROWS, rng)),
        "validation/held_out/tasks.jsonl": jsonl(requests(by_tool(1), HELD_OUT_ROWS, rng)),
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")
